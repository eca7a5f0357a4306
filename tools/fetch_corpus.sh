#!/usr/bin/env bash
# Fetches documents: manuals of Debian packages, unpacked into a folder and never installed.
#
#   tools/fetch_corpus.sh DEST            the demo's documents
#   tools/fetch_corpus.sh DEST manuals    what docs/results measures with, a choice of 12 MB
#   tools/fetch_corpus.sh DEST training   what models/retro-docs was trained on: the manuals of 67 packages, whole
#   tools/fetch_corpus.sh DEST large      these and the manuals of the packages in tools/retro_docs/packages.txt
#
#   DEST/text/PACKAGE/       what retro-index reads: man pages (.N.gz) and HTML
#   DEST/copyright/PACKAGE   the copyright file that came with it
#
# Packages come through apt-get download, which checks them against the distribution's signed lists; root is not needed.
# A package that is complete is not fetched again, so a second run takes no time. Left out on purpose: changelogs,
# release notes, translations, indexes, aliases (.so pages, links), and manuals that a package holds in a second format.
set -euo pipefail

dest=${1:?usage: fetch_corpus.sh DEST [demo|manuals|training|large]}
set=${2:-demo}
more_packages=$(cd "$(dirname "$0")" && pwd)/retro_docs/packages.txt
script=tools/fetch_corpus.sh
apt_options=(-o APT::Sandbox::User=root)

say() { printf '\033[1mcorpus:\033[0m %s\n' "$*"; }
fail() { echo "$script: $*" >&2; exit 1; }

git_manuals() {
    echo git-man usr/share/man man5/{githooks,gitignore}.5.gz \
        man7/{giteveryday,gitfaq,gitglossary,gitrevisions,gittutorial,gitworkflows}.7.gz \
        man1/git{,-add,-bisect,-blame,-branch,-checkout,-cherry-pick,-clean,-clone,-commit,-fetch,-grep,-init,-log}.1.gz \
        man1/git-{merge,mv,pull,push,rebase,remote,reset,restore,revert,rm,stash,status,submodule,switch,tag}.1.gz \
        man1/git-worktree.1.gz
}

# A package, the folder in it, and globs of the files to keep: 2 MB of plain text, as much as two cores index in a minute.
demo_corpus() (
    set -f
    echo manpages-dev usr/share/man man2/{accept,access,alarm,bind,brk,chdir,chmod,chown,chroot,close,connect,copy_file_range}.2.gz \
        man2/{dup,epoll_create,epoll_ctl,epoll_wait,eventfd,_exit,execve,fallocate,fcntl,flock,fork,fsync,getcwd,getdents}.2.gz \
        man2/{getpid,getpriority,getrandom,getrlimit,getrusage,getsockname,getsockopt,gettid,gettimeofday,getuid,inotify_add_watch}.2.gz \
        man2/{ioctl,kill,link,listen,lseek,madvise,memfd_create,mincore,mkdir,mknod,mlock,mmap,mount,mprotect,mremap,msync}.2.gz \
        man2/{nanosleep,nice,open,openat2,pause,pidfd_open,pipe,poll,pread,read,readlink,readv,recv,rename,rmdir,select,send}.2.gz \
        man2/{sendfile,setpgid,setsid,setuid,shutdown,sigaction,sigaltstack,signalfd,sigprocmask,sigsuspend,socket,socketpair}.2.gz \
        man2/{splice,stat,statfs,statx,symlink,sync,sysinfo,time,timerfd_create,times,truncate,umask,umount,uname,unlink}.2.gz \
        man2/{utime,utimensat,vfork,wait,wait4,write}.2.gz
    echo coreutils usr/share/man man1/*
    git_manuals
)

# What the measurements of docs/results were made with: 5 MB of plain text, 23 000 chunks of the shipped model.
manuals_corpus() (
    set -f
    echo manpages usr/share/man man5/{core,hosts,nsswitch.conf,resolv.conf}.5.gz \
        man7/{aio,capabilities,cgroups,credentials,environ,epoll,feature_test_macros,fifo,glob,hier,inode,inotify}.7.gz \
        man7/{ip,ipv6,man-pages,mount_namespaces,namespaces,path_resolution,pid_namespaces,pipe,pthreads,random}.7.gz \
        man7/{regex,sched,signal,signal-safety,socket,symlink,tcp,time,udp,unix,user_namespaces}.7.gz
    echo manpages-dev usr/share/man man2/*
    echo coreutils usr/share/man man1/*
    git_manuals
    echo git-doc usr/share/doc/git-doc user-manual.html
    echo bash-doc usr/share/doc/bash bashref.html
    echo sqlite3-doc usr/share/doc/sqlite3 lang_*.html {datatype3,faq,wal,whentouse}.html
)

# Packages of which every manual is kept.
training_corpus() {
    printf '%s\n' manpages manpages-dev coreutils git-man git-doc bash-doc sqlite3-doc postgresql-doc-15 python3.11-doc \
        apache2-doc cmake-doc zsh-doc zsh-common debian-policy debian-reference-en developers-reference \
        installation-guide-amd64 autoconf-doc m4-doc bind9-doc postfix-doc systemd util-linux mount iproute2 \
        iptables nftables openssh-client openssh-server e2fsprogs procps psmisc login passwd sudo tar gzip bzip2 xz-utils \
        zstd grep sed gawk findutils diffutils patch make gdb strace tmux screen rsync curl wget gpg dpkg dpkg-dev apt \
        cron vim-common less file bc jq gcc-12 fish-common mercurial-common
}

# A folder of another set's package is kept, so the set "training" grows into this one.
large_corpus() {
    training_corpus
    sed -n 's/^\([a-z0-9][^ ]*\) .*/\1/p' "$more_packages"
}

# Our own copy of the distribution's lists, when the machine has none or they name versions the mirror no longer holds.
update_private_lists() {
    say "reading the distribution's package lists"
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    apt_options+=(-o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache")
    apt-get -qq "${apt_options[@]}" update
}

try_download() { (cd "$work/deb" && apt-get -qq "${apt_options[@]}" download "$1" >"$work/apt.log" 2>&1 </dev/null); }

download() {
    rm -rf "$work/deb"
    mkdir -p "$work/deb"
    try_download "$1" && return
    if [ ! -d "$work/lists" ]; then
        update_private_lists
        try_download "$1" && return
    fi
    cat "$work/apt.log" >&2
    fail "cannot download the package $1"
}

# Man pages that are not aliases of another, and HTML pages that are not lists of others.
wanted() {
    local start
    case ${1##*/} in
        lang_naming.html | *index*.html | search.html | *changelog* | *changes.html | *news.html | *toc.html) return 1 ;;
        *.html) return 0 ;;
        *.[1-9]*.gz)
            start=$'\n'$(zcat "$1" | head -c 300)
            [[ $start != *$'\n.so '* ]] ;;
        *) return 1 ;;
    esac
}

# A package may share the documentation folder of another: then it has the other's copyright file.
keep_copyright() {
    local package=$1 folder=$2 other
    if [ -L "$folder" ]; then
        other=$(basename "$(readlink "$folder")")
        if [ -f "$dest/copyright/$other" ]; then
            cp "$dest/copyright/$other" "$dest/copyright/$package"
            return
        fi
        download "$other"
        dpkg -x "$work"/deb/*.deb "$root"
    fi
    cp -L "$folder/copyright" "$dest/copyright/$package"
}

# Paths of all manuals in a folder: man pages and HTML; no sources, release notes, or translations (a folder whose name is
# that of a language).
find_manuals() {
    find . -type f \( -path '*/man/man[1-8]/*.[1-8].gz' -o -name '*.html' \) | LC_ALL=C sort |
        grep -Ev '/(_sources|_static|releaselog|RelNotes|whatsnew|style|[a-df-z][a-z]|e[a-mo-z]|[a-z][a-z][-_][A-Za-z]+)/'
}

# The same for the packages of the large set: pages of sections such as 3ssl too, languages by name since mm and fb are
# subjects; no lists of members, frames or listed sources, and of Rust's library only the crate that shows the others.
languages='ar|bg|ca|cs|da|de|el|eo|es|fa|fi|fr|he|hr|hu|id|it|ja|ko|lt|nb|nl|nn|pl|pt|ro|ru|sk|sl|sr|sv|tr|uk|vi|zh'
find_more_manuals() {
    find . -type f \( -path '*/man/man[1-8]/*.[1-8]*.gz' -o -name '*.html' \) | LC_ALL=C sort |
        grep -Ev "/($languages|([a-df-z][a-z]|e[a-mo-z])[-_][A-Z][A-Za-z]+|translations)/" |
        grep -Ev '/(_sources|_static|_modules|releaselog|RelNotes|whatsnew|src|src-html|class-use)/' |
        grep -Ev '/rust-doc/html/(core|alloc|test|std/arch)/' |
        grep -Ev '(-members|_source|-use|-frame|-tree|-summary|overview-.*|all[a-z]*-?(classes|packages).*|sidebar.*)\.html$'
}

# Files of one folder's globs lie beside each other; those of a whole package keep their paths. Names come by standard input.
keep() {
    if [ "$folder" = usr/share ]; then
        (cd "$root/$folder" && xargs -r -d '\n' cp --parents -t "$kept/")
    else
        (cd "$root/$folder" && xargs -r -d '\n' cp -t "$kept/")
    fi
}

# fetch PACKAGE [FOLDER GLOB...]: downloads, unpacks, keeps the wanted files, and only then puts them in place. Without a
# folder every manual is kept, under its path.
fetch() {
    local package=$1 folder=${2:-usr/share} root="$work/root" kept="$work/kept" file manuals=find_manuals
    shift $(($# < 2 ? $# : 2))
    rm -rf "$root" "$kept"
    if grep -q "^$package " "$more_packages"; then manuals=find_more_manuals; fi
    mkdir -p "$root" "$kept" "$dest/text" "$dest/copyright" "$dest/.complete"
    download "$package"
    dpkg -x "$work"/deb/*.deb "$root"
    rm -rf "$work/deb"
    # Unquoted: the globs are for the unpacked folder. A link is another name of a page that is kept anyway.
    # shellcheck disable=SC2048,SC2086
    while read -r file; do
        if wanted "$root/$folder/$file"; then echo "$file"; fi
    done < <(cd "$root/$folder" && if [ $# -gt 0 ]; then find $* -maxdepth 0 -type f; else "$manuals"; fi) | keep
    [ -n "$(ls "$kept")" ] || fail "the package $package holds none of the files expected in $folder"
    rm -rf "${dest:?}/text/$package"
    keep_copyright "$package" "$root/usr/share/doc/$package"
    mv "$kept" "$dest/text/$package"
    say "$package: $(find "$dest/text/$package" -type f | wc -l) documents"
}

case $set in
    demo | manuals | training | large) ;;
    *) fail "unknown set \"$set\"; known are demo, manuals, training and large" ;;
esac
for program in apt-get dpkg; do
    command -v "$program" >/dev/null || fail "$program is missing: the documents are Debian packages"
done
mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

while read -r -a words <&3; do
    complete="$dest/.complete/${words[0]}"
    [ -f "$complete" ] && [ "$(cat "$complete")" = "${words[*]}" ] && continue
    # Beside the destination, so that what is complete moves there in one step.
    [ -n "$work" ] || work=$(mktemp -d "$dest/.fetch.XXXXXX")
    fetch "${words[@]}"
    echo "${words[*]}" > "$complete"
done 3< <("${set}_corpus")

if [ -n "$work" ]; then
    say "$(find "$dest/text" -type f | wc -l) documents in $dest/text; their licences are in $dest/copyright"
fi
