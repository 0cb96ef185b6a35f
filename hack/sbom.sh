#!/usr/bin/env bash
# What a program is made of, as CycloneDX, from Cargo.lock and cargo's own tree: hack/sbom.sh PACKAGE
set -euo pipefail
cd "$(dirname "$0")/.."
package=$1
cargo tree --locked --package "$package" --edges normal,no-proc-macro --prefix none --no-dedupe --format '{p}|{l}' | sort -u |
  awk -v package="$package" '
    FNR == NR { # Cargo.lock
      if ($1 == "name") name = $3
      if ($1 == "version") version = $3
      if ($1 == "checksum") { gsub(/"/, "", name); gsub(/"/, "", version); gsub(/"/, "", $3); checksums[name " " version] = $3 }
      next
    }
    {
      split($0, half, "|"); split(half[1], word, " "); sub(/^v/, "", word[2]); license = half[2]; gsub("/", " OR ", license)
      line = sprintf("\"name\": \"%s\", \"version\": \"%s\", \"purl\": \"pkg:cargo/%s@%s\"", word[1], word[2], word[1], word[2])
      if (license != "") line = line sprintf(", \"licenses\": [{ \"expression\": \"%s\" }]", license)
      if (word[1] == package) { own = line; next }
      sum = checksums[word[1] " " word[2]]
      if (sum != "") line = line sprintf(", \"hashes\": [{ \"alg\": \"SHA-256\", \"content\": \"%s\" }]", sum)
      all = all (all == "" ? "" : ",\n") "    { \"type\": \"library\", " line " }"
    }
    END {
      printf "{\n  \"bomFormat\": \"CycloneDX\",\n  \"specVersion\": \"1.6\",\n  \"version\": 1,\n"
      printf "  \"metadata\": { \"component\": { \"type\": \"application\", %s } },\n  \"components\": [\n%s\n  ]\n}\n", own, all
    }' Cargo.lock -
