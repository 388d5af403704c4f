#!/usr/bin/env bash
# Builds the .deb: the binary, its man pages and completions, and the systemd unit. Needs cargo-deb.
set -euo pipefail
cd "$(dirname "$0")/../.."
# With the lines of backtraces.
CARGO_PROFILE_RELEASE_DEBUG=line-tables-only cargo build --release --locked
dovetail=${CARGO_TARGET_DIR:-target}/release/dovetail
"$dovetail" man target/dist/man
mkdir -p target/dist/completions
"$dovetail" completions bash > target/dist/completions/dovetail
"$dovetail" completions zsh > target/dist/completions/_dovetail
"$dovetail" completions fish > target/dist/completions/dovetail.fish
exec cargo deb --package dovetail --no-build
