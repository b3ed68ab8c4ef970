#!/bin/sh
# symbols.sh LIBRARY LIST: the library exports exactly the symbols in the list.
set -eu
found=$(nm -D --defined-only "$1" | awk '$2 != "A" { print $3 }' | sed 's/@.*//' | sort)
wanted=$(grep -v '^#' "$2" | sort)
if [ "$found" != "$wanted" ]; then
    echo "exported symbols differ from $2 (a symbol that is gone breaks programs; a new one belongs into the list):"
    printf '%s\n' "$wanted" > "${TMPDIR:-/tmp}/plasmon-symbols.$$"
    printf '%s\n' "$found" | diff "${TMPDIR:-/tmp}/plasmon-symbols.$$" - || true
    rm -f "${TMPDIR:-/tmp}/plasmon-symbols.$$"
    exit 1
fi
