# Install packages with apt, for bases of the Debian family.
# shellcheck shell=sh disable=SC2154 # $here and $family are those of prepare, which sources this

install_packages() {
    [ $# -gt 0 ] || return 0
    cp "$here"/common/etc/dpkg/dpkg.cfg.d/virtual-node /etc/dpkg/dpkg.cfg.d/
    apt-get -q -o Acquire::Languages=none update
    apt-get -q -y -o Dpkg::Use-Pty=0 --no-install-recommends install "$@"
}

# Create a signed repository at $1 with the remaining packages and their dependencies.
apt_repository() {
    place=$1
    shift
    mkdir -p "$place" /etc/apt/keyrings
    apt-get -q -o Acquire::Languages=none update
    apt-get clean
    apt-get -q -y --no-install-recommends --download-only install "$@"
    mv /var/cache/apt/archives/*.deb "$place"
    home=$(mktemp -d)
    # Ubuntu's name of the package with perf.
    mkdir -p "$home/tools/DEBIAN"
    cat >"$home/tools/DEBIAN/control" <<END
Package: linux-tools-generic
Version: 6.1
Architecture: all
Maintainer: virtual node <root@localhost>
Depends: linux-perf
Description: stand-in
END
    dpkg-deb --build "$home/tools" "$place/linux-tools-generic_6.1_all.deb"
    gpg --homedir "$home" --batch --quiet --passphrase '' \
        --quick-generate-key 'Virtual nodes, this image only' ed25519 sign never
    gpg --homedir "$home" --armor --export >/etc/apt/keyrings/virtual-node.asc
    (
        cd "$place" || exit
        apt-ftparchive packages . >Packages
        apt-ftparchive -o APT::FTPArchive::Release::Origin='virtual node' release . >Release.new
        mv Release.new Release
        gpg --homedir "$home" --batch --quiet --clearsign -o InRelease Release
    )
    gpgconf --homedir "$home" --kill gpg-agent
    rm -rf "$home"
    rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*
    cat >/etc/apt/sources.list.d/virtual-node.list <<END
deb [signed-by=/etc/apt/keyrings/virtual-node.asc] file:$place ./
END
    rm -rf /var/lib/apt/lists/*
    apt-get -q -o Acquire::Languages=none update
}

clean_packages() {
    apt-get clean
    rm -rf /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /var/cache/debconf/*-old
}
