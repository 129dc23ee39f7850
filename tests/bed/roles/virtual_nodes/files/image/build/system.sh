# Set up accounts and services, the same for every base. Nothing here is specific to one node.
# shellcheck shell=sh disable=SC2154 # $here and $family are those of prepare, which sources this

admins=sudo
[ "$family" = el ] && admins=wheel
getent group "$admins" >/dev/null || groupadd --system "$admins"
id ops >/dev/null 2>&1 || useradd --create-home --shell /bin/bash --groups "$admins" ops
usermod --lock ops

rm -f /etc/ssh/ssh_host_*
: >/etc/machine-id
mkdir -p /run/sshd

# A container has no consoles and no separate kernel. Units that wait for them would leave the
# system `degraded`.
for unit in run-rpc_pipefs.mount e2scrub_reap.service e2scrub_all.timer getty.target \
    console-getty.service systemd-udevd.service systemd-udev-trigger.service \
    systemd-networkd-wait-online.service NetworkManager-wait-online.service \
    systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
    fstrim.timer man-db.timer dnf-makecache.timer sys-kernel-debug.mount \
    systemd-ask-password-console.path systemd-ask-password-wall.path \
    sys-kernel-tracing.mount dev-hugepages.mount rdma-ndd.service iwpmd.service \
    var-lib-nfs-rpc_pipefs.mount proc-fs-nfsd.mount nfs-blkmap.service nfs-idmapd.service \
    auth-rpcgss-module.service; do
    ln -sf /dev/null "/etc/systemd/system/$unit"
done
systemctl set-default multi-user.target
systemctl enable virtual-node.service virtual-node-keys.service
for unit in ssh.service sshd.service; do
    if [ -e "/usr/lib/systemd/system/$unit" ] || [ -e "/lib/systemd/system/$unit" ]; then
        systemctl enable "$unit"
        break
    fi
done
case $family in
    ubuntu) systemctl enable systemd-networkd.service ;;
    el)
        systemctl disable systemd-networkd.service 2>/dev/null || true
        systemctl enable NetworkManager.service
        ;;
esac # a switch gets its one address from outside
