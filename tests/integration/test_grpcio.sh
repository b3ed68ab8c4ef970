#!/bin/sh
# A stock gRPC client (Debian's python3-grpcio) against a real head, with a token, over both transports.
set -eu
folder=$(dirname "$0")
. "$folder/lib.sh"

echo another-secret >"$XDG_RUNTIME_DIR/token"
port=$(free_port)
"$plasmon" start --head --listen "127.0.0.1:$port" --token-file "$XDG_RUNTIME_DIR/token" --cpu-devices 2 --gpus none \
    --device-memory 64M >&2

for target in "unix:$XDG_RUNTIME_DIR/plasmon-$(id -u)/head.sock" "127.0.0.1:$port"; do
    echo "# $target"
    status=0
    timeout 100 /usr/bin/python3 "$folder/grpcio_client.py" --target "$target" --token-file "$XDG_RUNTIME_DIR/token" ||
        status=$?
    [ "$status" -eq 0 ] || exit "$status" # 77: something is not installed
done
