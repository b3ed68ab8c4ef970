#!/bin/sh
# test_trust_cluster.sh PROGRAM: a cluster with mutual TLS, a token and namespaces, with real
# processes: who gets in, who does not and what they are told; secrets are nowhere to be seen;
# certificates are replaced while it runs.
set -eu
program=$1
. "$(dirname "$0")/lib.sh"

export GRPC_DNS_RESOLVER=native # c-ares leaks a few bytes, which a sanitizer would tell
dir=$XDG_RUNTIME_DIR
ca=$dir/ca
secret=token-of-the-cluster-7f3a
team_secret=token-of-team-a-91c2
port=$(free_port)
echo "$secret" >"$dir/token"
echo "$team_secret" >"$dir/team.token"
printf '[team-a]\nsessions = 1\ntasks = 1000\ndevice_bytes = 64M\ntoken_file = team.token\n[default]\n' >"$dir/spaces"

certificates() {
    "$plasmon" cert init "$ca" && "$plasmon" cert init "$dir/strangers" &&
        "$plasmon" cert issue "$ca" a --role head --role host --host localhost --host 127.0.0.1 &&
        "$plasmon" cert issue "$ca" b --role host --key ed25519 && "$plasmon" cert issue "$ca" me &&
        "$plasmon" cert issue "$ca" confined --namespace team-a && "$plasmon" cert issue "$dir/strangers" me &&
        cat "$ca/ca.crt" "$dir/strangers/ca.crt" >"$dir/both.crt"
}
tls() { # NAME [CA]
    echo "--tls-ca ${2:-$ca/ca.crt} --tls-cert $ca/$1.crt --tls-key $ca/$1.key"
}
start() {
    # shellcheck disable=SC2046
    "$plasmon" start --head --listen "127.0.0.1:$port" --token-file "$dir/token" --namespaces "$dir/spaces" \
        --cpu-devices 1 --gpus none --device-memory 64M --log debug $(tls a)
}
# with CERT KEY CA COMMAND..: as a program elsewhere has it
with() {
    cert=$1 key=$2 trusted=$3
    shift 3
    PLASMON_ADDRESS=localhost:$port PLASMON_TLS_CERT=$cert PLASMON_TLS_KEY=$key PLASMON_TLS_CA=$trusted timeout 60 "$@"
}
as() { # NAME COMMAND..: with the cluster's token
    who=$1
    shift
    PLASMON_TOKEN_FILE=$dir/token with "$ca/$who.crt" "$ca/$who.key" "$ca/ca.crt" "$@"
}
runs() { [ "$("$@" "$program")" = right ]; }
# refused TEXT COMMAND..
refused() {
    text=$1
    shift
    if said=$("$@" 2>&1); then
        echo "it was let in: $said"
        return 1
    fi
    echo "$said"
    echo "$said" | grep -q -- "$text"
}
joins() { # a second store, over TCP; another socket folder, for there is one store a host, which says so
    refused "$1" timeout 60 "$PLASMON_BIN_DIR/plasmon-store" --head "localhost:$port" --token-file "${3:-$dir/token}" \
        --socket-dir "$dir/second" --gpus none --cpu-devices 1 --device-memory 64M $2
}
no_secret_is_seen() {
    for pid in $(daemons); do
        for what in cmdline environ; do
            if tr '\0' '\n' <"/proc/$pid/$what" | grep -F -e "$secret" -e "$team_secret" -e 'PRIVATE KEY'; then
                echo "in $what of $(tr '\0' ' ' <"/proc/$pid/cmdline")"
                return 1
            fi
        done
    done
    [ "$(daemons | wc -l)" -ge 3 ] || return 1
    if grep -rF -e "$secret" -e "$team_secret" -e 'PRIVATE KEY' "$dir"/plasmon-*/; then
        echo "in a log or a record"
        return 1
    fi
    as me "$plasmon" status --json >"$dir/status.json" && as me "$plasmon" transfers --json >>"$dir/status.json" || return 1
    ! grep -F -e "$secret" -e "$team_secret" -e 'PRIVATE KEY' "$dir/status.json"
}
a_token_in_the_environment_is_wiped() {
    "$plasmon" stop && PLASMON_TOKEN=$secret "$plasmon" start --head --listen "127.0.0.1:$port" --namespaces "$dir/spaces" \
        --cpu-devices 1 --gpus none --device-memory 64M $(tls a) && no_secret_is_seen && runs as me
}
team() { PLASMON_TOKEN=$team_secret with "$ca/me.crt" "$ca/me.key" "$ca/ca.crt" "$@"; }
status_of_its_own() {
    said=$(team "$plasmon" status --json | tr -d ' \n')
    echo "$said"
    echo "$said" | grep -q '"namespaces":\[{"name":"team-a",.*"quota":{"device_bytes":67108864,"tasks":1000,"sessions":1,' &&
        ! echo "$said" | grep -q '"name":"default"' || return 1
    said=$(team "$plasmon" nodes --json && team "$plasmon" objects --json)
    echo "$said"
    echo "$said" | grep -q '"state":"up","connected":true' && echo "$said" | grep -q '^{"objects":\[\],"more":false}$'
}
status_of_all() {
    said=$(as me "$plasmon" status)
    echo "$said"
    echo "$said" | grep -Eq '^  team-a +0 B of 64.0 MiB +0 of 1000 +0 of 1 '
}
drains_not() { # neither by its token, nor, with any token, by a certificate of this role
    refused "is for client" as me "$plasmon" drain "$(uname -n)" &&
        refused "is one namespace's" env PLASMON_TOKEN=$team_secret PLASMON_ADDRESS=localhost:$port PLASMON_TLS_CERT=$ca/b.crt \
            PLASMON_TLS_KEY=$ca/b.key PLASMON_TLS_CA=$ca/ca.crt timeout 60 "$plasmon" drain "$(uname -n)"
}
renewed_is_taken() {
    before=$(as me "$plasmon" status --json | grep -c '"version"')
    "$plasmon" cert renew "$ca" a --days 3 && [ "$before" = 1 ] && runs as me &&
        grep -q "took the new certificate of 'a'" "$dir"/plasmon-*/plasmon-head.log
}
readable_key() {
    chmod 640 "$ca/me.key"
    refused "chmod 600 $ca/me.key" as me "$program"
    result=$?
    chmod 600 "$ca/me.key"
    return $result
}
readable_token() {
    chmod 644 "$dir/token"
    refused "chmod 600 $dir/token" as me "$program"
    result=$?
    chmod 600 "$dir/token"
    return $result
}
head_refuses() { # TEXT OPTION..
    text=$1
    shift
    refused "$text" timeout 20 "$PLASMON_BIN_DIR/plasmon-head" --listen 127.0.0.1:0 "$@"
}
bad_spaces() {
    printf '[a]\ntask = 1\n' >"$dir/bad"
    head_refuses "line 2: there is no setting 'task'" --namespaces "$dir/bad"
}
stop_leaves_nothing() {
    "$plasmon" stop
    [ -z "$(daemons)" ]
}

# A store that joins a head elsewhere: no Unix socket, so TLS.
joined_is_found() {
    "$PLASMON_BIN_DIR/plasmon-head" --listen "127.0.0.1:$port" --token-file "$dir/token" $(tls a) >"$dir/head.log" 2>&1 &
    head=$!
    said=$(cd "$ca" && "$plasmon" start --address "localhost:$port" --token-file ../token --tls-ca ca.crt --tls-cert b.crt --tls-key b.key \
        --cpu-devices 1 --gpus none --device-memory 64M) || return 1
    echo "$said"
    (
        unset PLASMON_ADDRESS PLASMON_TOKEN PLASMON_TOKEN_FILE
        cd / && "$plasmon" nodes --json | grep '"state":"up"' && "$plasmon" doctor --cluster && "$plasmon" stop
    ) || return 1
    echo "$said" >"$dir/said"
    for name in CA CERT KEY; do
        echo "$said" | grep -q "export PLASMON_TLS_$name=$ca/" || return 1
    done
    kill "$head"
    wait "$head"
}

claim certificates_are_made certificates
claim a_cluster_with_tls_starts start
claim a_program_runs_over_tls runs as me
claim without_certificates_it_is_told_that_the_head_speaks_tls refused "PLASMON_TLS_CA" env PLASMON_ADDRESS=localhost:$port PLASMON_TOKEN=$secret timeout 60 "$program"
claim the_head_is_of_another_ca refused "not good by our CA" with "$dir/strangers/me.crt" "$dir/strangers/me.key" "$dir/strangers/ca.crt" "$program"
claim the_program_is_of_another_ca refused "our certificate 'me'" with "$dir/strangers/me.crt" "$dir/strangers/me.key" "$dir/both.crt" "$program"
claim a_key_of_another refused "is not the one of the certificate" with "$ca/me.crt" "$ca/b.key" "$ca/ca.crt" "$program"
claim a_key_that_is_missing refused "cannot read the key $ca/nobody.key" with "$ca/me.crt" "$ca/nobody.key" "$ca/ca.crt" "$program"
claim a_key_that_others_may_read readable_key
claim a_token_that_others_may_read readable_token
claim tls_without_the_token_is_not_enough refused "is not one of this cluster" env PLASMON_TOKEN=wrong PLASMON_ADDRESS=localhost:$port PLASMON_TLS_CERT=$ca/me.crt PLASMON_TLS_KEY=$ca/me.key PLASMON_TLS_CA=$ca/ca.crt timeout 60 "$program"
claim a_client_cannot_join_as_a_store joins "is for client, and here one for host" "$(tls me)"
claim a_store_without_tls_is_told joins "speaks TLS" "--bulk-plain"
claim a_store_with_a_namespaces_token_is_refused joins "is one namespace's" "$(tls b)" "$dir/team.token"
claim a_host_is_no_head head_refuses "is for host, and here one for head" $(tls b)
claim two_of_three_files_are_not_enough head_refuses "--tls-key (PLASMON_TLS_KEY) is missing" --tls-ca "$ca/ca.crt" --tls-cert "$ca/a.crt"
claim a_fault_in_the_namespaces_file_is_told_with_its_line bad_spaces
claim a_namespaces_token_lets_into_it runs team
claim and_into_no_other refused "wants to be in 'default'" env PLASMON_NAMESPACE=default PLASMON_TOKEN=$team_secret PLASMON_ADDRESS=localhost:$port PLASMON_TLS_CERT=$ca/me.crt PLASMON_TLS_KEY=$ca/me.key PLASMON_TLS_CA=$ca/ca.crt timeout 60 "$program"
claim a_confined_certificate_lets_into_it_too runs as confined
claim an_unknown_namespace_is_refused refused "there is no namespace 'x'" env PLASMON_NAMESPACE=x PLASMON_TOKEN=$secret PLASMON_ADDRESS=localhost:$port PLASMON_TLS_CERT=$ca/me.crt PLASMON_TLS_KEY=$ca/me.key PLASMON_TLS_CA=$ca/ca.crt timeout 60 "$program"
claim it_sees_its_own_use_alone status_of_its_own
claim the_operator_sees_all status_of_all
claim it_cannot_drain drains_not
claim a_renewed_certificate_is_taken_while_it_runs renewed_is_taken
claim no_secret_is_in_a_process_list_a_log_or_a_status no_secret_is_seen
claim a_token_in_the_environment_is_not_seen_either a_token_in_the_environment_is_wiped
claim it_stops stop_leaves_nothing
claim what_joins_over_tls_is_found_by_commands_without_a_variable joined_is_found
claim it_stops_again stop_leaves_nothing
finish
