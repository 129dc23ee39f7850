# Packages by dnf, for bases of the Red Hat family (rockylinux:9).
# shellcheck shell=sh disable=SC2154 # $here and $family are those of prepare, which sources this

install_packages() {
    [ $# -gt 0 ] || return 0
    dnf -q -y --nodocs --setopt=install_weak_deps=False install dnf-plugins-core epel-release
    dnf -q -y config-manager --set-enabled crb
    dnf -q -y --nodocs --setopt=install_weak_deps=False --allowerasing install "$@" createrepo_c rpm-sign
}

# A repository at $1 with the remaining packages, and what they still need; they keep the signatures
# their distribution gave them.
dnf_repository() {
    place=$1
    shift
    mkdir -p "$place"
    dnf -q -y download --resolve --destdir "$place" "$@"
    createrepo_c -q "$place"
    rm -f /etc/yum.repos.d/*.repo
    cat >/etc/yum.repos.d/virtual-node.repo <<END
[virtual-node]
name=Packages for the roles on virtual nodes
baseurl=file://$place
enabled=1
gpgcheck=1
gpgkey=$(printf 'file://%s ' /etc/pki/rpm-gpg/RPM-GPG-KEY-*)
END
}

clean_packages() {
    dnf -q clean all
}
