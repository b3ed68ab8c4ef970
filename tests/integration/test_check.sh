#!/bin/sh
# test_check.sh CHECK: what tools/check makes of tests that fail, in a project of its own that
# compiles nothing.
set -eu
check=$1
. "$(dirname "$0")/lib.sh"

work=$XDG_RUNTIME_DIR/project
mkdir -p "$work/tools" "$work/bin"
cp "$check" "$work/tools/check"
printf '#!/bin/sh\n' | tee "$work/tools/setup" >"$work/bin/clang" # everything is installed
chmod +x "$work/tools/setup" "$work/bin/clang"
cat >"$work/CMakePresets.json" <<end
{"version": 3, "configurePresets": [
  {"name": "check", "generator": "Ninja", "binaryDir": "\${sourceDir}/build/\${presetName}"},
  {"name": "asan", "inherits": "check"}, {"name": "tsan", "inherits": "check"}, {"name": "fuzz", "inherits": "check"}]}
end

# project NAME=LABEL=COMMAND...: tests of the project; how often each has run is in its file in runs/.
project() {
    rm -rf "$work/build" "$work/runs"
    mkdir "$work/runs"
    {
        echo 'cmake_minimum_required(VERSION 3.20)'
        echo 'project(checked LANGUAGES NONE)'
        echo 'enable_testing()'
        echo 'add_custom_target(plasmon_fuzzers)'
        echo 'add_custom_target(plasmon_tests_tsan)'
    } >"$work/CMakeLists.txt"
    for one in "$@"; do
        test=${one%%=*} rest=${one#*=}
        printf '#!/bin/sh\necho x >>"%s/runs/%s"\nruns=$(grep -c x "%s/runs/%s")\n%s\n' \
            "$work" "$test" "$work" "$test" "${rest#*=}" >"$work/bin/$test"
        chmod +x "$work/bin/$test"
        echo "add_test(NAME $test COMMAND $work/bin/$test)" >>"$work/CMakeLists.txt"
        echo "set_tests_properties($test PROPERTIES LABELS ${rest%%=*})" >>"$work/CMakeLists.txt"
    done
}
checked() { # [STAGE]: status, and what it printed
    status=0
    (cd "$work" && cmake --preset check) >/dev/null
    PATH=$work/bin:$PATH CI='' "$work/tools/check" ${1:+--stage "$1"} >"$work/out" 2>&1 || status=$?
    cat "$work/out"
}
ran() { # NAME TIMES
    [ "$(grep -c x "$work/runs/$1")" -eq "$2" ]
}

a_test_that_passes_alone() {
    project 'test_good=unit=exit 0' 'test_shy=unit=echo "not ok 1 shy"; [ "$runs" -gt 1 ]'
    checked tests
    [ "$status" -eq 0 ] && ran test_good 1 && ran test_shy 2 &&
        grep -q 'passed, unsteady: test_shy' "$work/out" && grep -q 'not ok 1 shy' "$work/out" &&
        grep -qx '2 passed, 0 failed' "$work/out"
}
a_test_that_fails_again() {
    project 'test_good=unit=exit 0' 'test_bad=unit=exit 1'
    checked tests
    [ "$status" -eq 1 ] && ran test_bad 2 && grep -qx '1 passed, 1 failed' "$work/out"
}
a_seed_is_given_again() {
    project 'test_seeded=unit=echo "seed 77"; [ "$runs" -gt 1 ] && [ "$PLASMON_TEST_SEED" = 77 ]'
    checked tests
    [ "$status" -eq 0 ] && ran test_seeded 2 && grep -q 'unsteady: test_seeded' "$work/out"
}
three_that_fail() {
    project 'test_a=unit=[ "$runs" -gt 1 ]' 'test_b=unit=[ "$runs" -gt 1 ]' 'test_c=unit=[ "$runs" -gt 1 ]'
    checked tests
    [ "$status" -eq 1 ] && ran test_a 1 && grep -qx '0 passed, 3 failed' "$work/out"
}
# The fuzzer would find nothing in the inputs of a second run, and the fatal one is here.
a_finding_that_does_not_come_again() {
    finding=$work/build/fuzz/findings/fuzz_rare-crash-1
    project 'fuzz_good=fuzz=exit 0' "fuzz_rare=fuzz=[ \"\$runs\" -gt 1 ] || { printf 'fatal\\377' >$finding; exit 77; }"
    checked fuzz
    [ "$status" -eq 1 ] && ran fuzz_rare 1 && grep -qx '1 passed, 1 failed' "$work/out" && ! grep -q unsteady "$work/out" &&
        cmp "$finding" "$work/build/logs/fuzz_rare-crash-1" &&
        [ "$(sed -n 's/.*base64 -d >fuzz_rare-crash-1 <<<//p' "$work/out" | base64 -d | od -An -c)" = "$(od -An -c "$finding")" ]
}
an_old_finding() {
    printf old >"$work/build/fuzz/findings/fuzz_rare-crash-0"
    touch -d '1 hour ago' "$work/build/fuzz/findings/fuzz_rare-crash-0"
    checked fuzz # the test has run before, and passes
    [ "$status" -eq 0 ] && [ -e "$work/build/fuzz/findings/fuzz_rare-crash-0" ] && ! grep -q finding "$work/out"
}

a_stage_over_its_limit() {
    project 'test_good=unit=exit 0' 'test_endless=unit=exec sleep 60'
    PLASMON_CHECK_LIMIT=5 checked tests
    [ "$status" -eq 1 ] && grep -q 'failed: over its limit of 5 s, with test_endless not ended$' "$work/out"
}

# What the next stages need is built beside a stage's tests. Here that has ended when they do.
built_ahead_first() {
    project 'test_long=unit=for _ in $(seq 200); do [ -e ../fuzz/build.ninja ] && exec sleep 1; sleep 0.1; done; exit 1'
    checked ''
    grep -q '^tests .* 1       0   passed$' "$work/out"
}

claim what_is_built_ahead_may_end_before_the_tests built_ahead_first
claim a_test_that_passes_alone_is_unsteady_and_counts_as_passed a_test_that_passes_alone
claim a_test_that_fails_again_fails_the_stage a_test_that_fails_again
claim the_second_run_has_the_seed_of_the_first a_seed_is_given_again
claim three_that_fail_are_not_tried_again three_that_fail
claim a_finding_of_a_fuzzer_fails_the_stage_and_is_kept_though_it_does_not_come_again a_finding_that_does_not_come_again
claim a_finding_of_before_is_neither_told_nor_lost an_old_finding
claim a_stage_over_its_limit_names_the_tests_that_had_not_ended a_stage_over_its_limit
finish
