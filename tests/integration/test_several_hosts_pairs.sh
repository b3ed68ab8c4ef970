#!/usr/bin/env bash
# test_several_hosts.sh with every transfer by a pair, of what stands in for NCCL on CPU devices.
exec "$(dirname "$0")/test_several_hosts.sh" "$@" nccl
