# tools/source_package.sh: gives the distribution's own source packages to the scripts that source it, and leaves the
# machine's lists of packages as they are.

# source_entry PACKAGE: the source entry of the mirror and suite that PACKAGE itself comes from.
source_entry() {
    apt-cache policy "$1" |
        awk '$1 ~ /^[0-9]+$/ && $2 ~ /:\/\// { split($3, s, "/");
             print "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]", $2, s[1], s[2]; exit }'
}

# source_package SOURCE PACKAGE FOLDER: unpacks SOURCE, which PACKAGE is built from, into FOLDER/SOURCE-VERSION. apt checks
# its signature.
source_package() (
    mkdir -p "$3/lists/partial" "$3/cache"
    [ -n "$(source_entry "$2")" ] || if [ "$(id -u)" = 0 ]; then apt-get update -qq; else sudo apt-get update -qq; fi
    source_entry "$2" > "$3/source.list"
    private=(-o "Dir::Etc::sourcelist=$3/source.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$3/lists" -o "Dir::Cache=$3/cache" -o APT::Sandbox::User=)
    cd "$3" && apt-get -qq "${private[@]}" update && apt-get -qq "${private[@]}" source "$1"
)
