# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Faults injected on virtual nodes, and the check of playbooks/verify.yml that finds each.

docs/generate_faults.py writes docs/faults.md from these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.nodes import Nodes, Run

FIRST, SECOND, THIRD, FOURTH, LAUNCHER = "node01", "node02", "node03", "node04", "launcher01"
"""Hosts of inventories/virtual-mixed. node01, the file server, and node02 are like Ubuntu, the
others like RHEL. Each layer is broken on some hosts and intact on the others. Logins, which the
layer ssh checks, need an intact client: node01 or node04."""

ELSEWHERE = {
    *("ssh_login", "rail_peer", "tcp_reachable", "rail_path", "ucx_device"),
    *("names_resolve", "localhost_resolves"),
}
"""Checks that may fail as a consequence, on this or another host."""


@dataclass(frozen=True)
class Fault:
    """A command (`by_hand`) run as root on `host`, after which `layer` fails `check` there.

    A run of the layer repairs it. `undo` is a command that the operator must run first.
    """

    name: str
    layer: str
    check: str
    host: str
    by_hand: str
    undo: str = ""
    subject: str = ""


ETC = "/etc/baremetal-mpi-roce"
PROGRAMS = "/usr/local/libexec/baremetal-mpi-roce"
UNITS = "/etc/systemd/system"
AS_USER = "runuser -l mpi -c '{}'"
DEBIAN_MCA = "/etc/openmpi/openmpi-mca-params.conf"
MCA = "/etc/openmpi-x86_64/openmpi-mca-params.conf"
REMOVE = (
    "if command -v rpm; then rpm -e --nodeps {el}; else dpkg --remove --force-depends {deb}; fi"
)
LOSE = (
    "tc qdisc add dev {rail} clsact && tc filter add dev {rail} ingress bpf da bytecode"
    " '4,32 0 0 4294963256,53 0 1 {share},6 0 0 4294967295,6 0 0 2'"
)
"""Drop packets whose random number (SKF_AD_RANDOM) is below `share`."""
DROP = (
    "tc qdisc add dev {interface} clsact && tc filter add dev {interface} ingress protocol ip bpf"
    " da bytecode '10,48 0 0 23,21 0 7 6,48 0 0 47,84 0 0 18,21 0 4 2,40 0 0 36,21 2 0 22,53 0 1"
    " 32768,6 0 0 2,6 0 0 4294967295'"
)
"""Drop the first TCP packet to ports from 32768, like a firewall, if IP has no options. Tested
separately, because logins must work for the other faults."""
SSH_CLIENT = "/etc/ssh/ssh_config.d/00-site.conf"
SSHD = "/etc/ssh/sshd_config.d"
CLIENT = {"ssh_client", "ssh_login"}
"""Checks of the client of a login; the other checks of the layer concern the server."""

NODE_FAULTS = [
    Fault(
        "wrong address in /etc/hosts",
        "names",
        "names_in_table",
        SECOND,
        r"sed -i 's/^10[0-9.]* \(node04\)$/10.9.9.9 \1/' /etc/hosts",
    ),
    Fault(
        "the managed block of /etc/hosts is missing",
        "names",
        "names_in_table",
        THIRD,
        "sed -i '/# BEGIN baremetal/,/# END baremetal/d' /etc/hosts",
    ),
    # Of a module that no node has, which returns immediately.
    Fault(
        "/etc/nsswitch.conf prefers a name server to /etc/hosts",
        "names",
        "names_source",
        FOURTH,
        "cp /etc/nsswitch.conf /root/nsswitch &&"
        " sed 's/^hosts:.*/hosts: nis files/' /root/nsswitch >/etc/nsswitch.conf",
        undo="cat /root/nsswitch >/etc/nsswitch.conf && rm /root/nsswitch",
    ),
    Fault("the host name was changed", "names", "host_name", SECOND, "hostname other"),
    Fault("/etc/hostname was changed", "names", "file", THIRD, "echo other >/etc/hostname"),
    Fault(
        "a package was removed",
        "os",
        "unchanged",
        FIRST,
        REMOVE.format(el="numactl", deb="numactl"),
    ),
    Fault(
        "dpkg was interrupted",
        "os",
        "packages_interrupted",
        SECOND,
        "sed -i '/^Package: numactl$/,/^$/s/^Status: .*/Status: install ok half-configured/'"
        " /var/lib/dpkg/status",
        undo="dpkg --configure -a",
    ),
    Fault(
        "a kernel parameter was changed",
        "os",
        "sysctl",
        FOURTH,
        "echo 4096 >/proc/sys/net/core/somaxconn",
    ),
    Fault(
        "a later file overrides a kernel parameter",
        "os",
        "sysctl_at_boot",
        FIRST,
        "echo net.core.somaxconn = 128 >/etc/sysctl.d/99-site.conf",
        undo="rm /etc/sysctl.d/99-site.conf",
    ),
    Fault(
        "the file of kernel parameters is missing",
        "os",
        "file",
        FOURTH,
        "rm /etc/sysctl.d/90-baremetal-mpi-roce.conf",
    ),
    Fault(
        "session limits were edited",
        "os",
        "file",
        FIRST,
        "echo '* hard memlock 64' >>/etc/security/limits.d/90-baremetal-mpi-roce.conf",
    ),
    Fault("wrong MTU of a rail", "rails", "rail_mtu", FOURTH, "ip link set rail1 mtu 1500"),
    Fault(
        "a second address on a rail",
        "rails",
        "rail_address",
        SECOND,
        "ip address add 10.9.9.9/24 dev rail0",
    ),
    Fault("a rail is down", "rails", "rail_link", FOURTH, "ip link set rail2 down"),
    Fault(
        "a rail has no address", "rails", "rail_address", SECOND, "ip -4 address flush dev rail2"
    ),
    Fault("a routing rule is missing", "rails", "rail_rule", SECOND, "ip rule del pref 10010"),
    Fault(
        "routes of a rail are missing", "rails", "rail_route", FOURTH, "ip route flush table 1030"
    ),
    Fault(
        "a blackhole route for a rail's network",
        "rails",
        "rail_route",
        SECOND,
        "ip route add blackhole 10.141.1.128/25",
    ),
    Fault(
        "wrong ARP setting of a rail",
        "rails",
        "rail_arp",
        SECOND,
        "echo 0 >/proc/sys/net/ipv4/conf/rail3/arp_ignore",
    ),
    Fault(
        "a static neighbour entry on a rail",
        "rails",
        "rail_neighbour",
        FOURTH,
        "ip neigh replace 10.141.0.11 lladdr 02:00:00:00:00:01 dev rail0 nud permanent",
    ),
    Fault(
        "the configuration of a rail was edited",
        "rails",
        "rail_config",
        FOURTH,
        "sed -i 's/9000/1500/' /etc/NetworkManager/system-connections/*rail0*",
    ),
    Fault(
        "the mount unit was edited",
        "storage",
        "file",
        THIRD,
        f"sed -i s/hard/soft/ {UNITS}/mnt-checkpoints.mount",
    ),
    Fault(
        "the automount unit is disabled",
        "storage",
        "storage_automount",
        THIRD,
        "systemctl disable mnt-checkpoints.automount",
    ),
    Fault(
        "the automount unit is missing",
        "storage",
        "file",
        FOURTH,
        f"rm {UNITS}/mnt-checkpoints.automount",
    ),
    Fault(
        "exports were edited",
        "storage",
        "file",
        FIRST,
        "sed -i s/root_squash/no_root_squash/ /etc/exports.d/baremetal-mpi-roce.exports",
    ),
    Fault(
        "the configuration of the NFS server is missing",
        "storage",
        "file",
        FIRST,
        "rm /etc/nfs.conf.d/baremetal-mpi-roce.conf",
    ),
    Fault(
        "everyone can write to the served directory",
        "storage",
        "nfs_directory",
        FIRST,
        "chmod 0777 /srv/checkpoints",
    ),
    Fault(
        "the MPI environment was edited",
        "mpi",
        "file",
        FIRST,
        f"echo UCX_TLS=self >>{ETC}/mpi.env",
    ),
    Fault(
        "the MPI profile is missing",
        "mpi",
        "file",
        THIRD,
        "rm /etc/profile.d/baremetal-mpi-roce.sh",
    ),
    Fault(
        "the smoke test program was edited",
        "mpi",
        "file",
        THIRD,
        f"echo >>{PROGRAMS}/allreduce.py",
    ),
    Fault("rail-bind cannot be executed", "mpi", "file", FIRST, f"chmod 0644 {PROGRAMS}/rail-bind"),
    Fault("orted is missing", "mpi", "file", THIRD, f"rm {PROGRAMS}/orted"),
    Fault(
        "another mpirun precedes in PATH",
        "mpi",
        "mpi_path",
        FIRST,
        "ln -s /bin/true /usr/local/bin/mpirun",
        undo="rm /usr/local/bin/mpirun",
    ),
    Fault(
        "a parameter of Open MPI after the managed ones",
        "mpi",
        "mpi_parameter",
        THIRD,
        f"echo pml = ob1 >>{MCA}",
        undo=f"sed -i '/pml = ob1/d' {MCA}",
    ),
    Fault(
        "a list of interfaces that conflicts with a managed parameter",
        "mpi",
        "mpi_parameter",
        FIRST,
        f"sed -i '1i oob_tcp_if_exclude = lo,docker0' {DEBIAN_MCA}",
        undo=f"sed -i /^oob_tcp_if_exclude/d {DEBIAN_MCA}",
    ),
    Fault(
        "an extra line in ucx.conf",
        "mpi",
        "ucx_file",
        FOURTH,
        "echo UCX_TLS=all >>/etc/ucx/ucx.conf",
        undo="sed -i /^UCX_TLS=all/d /etc/ucx/ucx.conf",
    ),
    Fault(
        "mpi4py was removed",
        "mpi",
        "unchanged",
        FIRST,
        REMOVE.format(el="python3-mpi4py-openmpi", deb="python3-mpi4py"),
    ),
    Fault(
        "a node is missing from the hostfile",
        "hostfile",
        "file",
        LAUNCHER,
        f"sed -i /^node01/d {ETC}/hostfile",
    ),
    Fault(
        "the MPI user cannot read the hostfile",
        "hostfile",
        "file",
        LAUNCHER,
        f"chmod 0600 {ETC}/hostfile",
    ),
    Fault(
        "settings of sshd were edited",
        "ssh",
        "file",
        SECOND,
        "echo X11Forwarding yes >>/etc/ssh/sshd_config.d/10-baremetal-mpi-roce.conf",
    ),
    Fault(
        "settings of ssh were edited",
        "ssh",
        "file",
        THIRD,
        "sed -i s/yes/no/ /etc/ssh/ssh_config.d/10-baremetal-mpi-roce.conf",
    ),
    Fault("the user CA is missing", "ssh", "file", SECOND, f"rm {ETC}/ssh/user_ca.pub"),
    Fault("known hosts were emptied", "ssh", "file", THIRD, f": >{ETC}/ssh/known_hosts"),
    Fault(
        "principals were edited", "ssh", "file", THIRD, f"echo x >>{ETC}/ssh/authorized_principals"
    ),
    Fault(
        "the MPI user's shell refuses logins",
        "ssh",
        "login_shell",
        SECOND,
        "usermod --shell /usr/sbin/nologin mpi",
        undo="usermod --shell /bin/bash mpi",
    ),
    Fault(
        "the MPI user's account expired",
        "ssh",
        "account_expiry",
        THIRD,
        "usermod --expiredate 2020-01-01 mpi",
        undo="usermod --expiredate '' mpi",
    ),
    Fault(
        "others can write to the MPI user's home",
        "ssh",
        "home",
        SECOND,
        "chmod go+w ~mpi",
        undo="chmod go-w ~mpi",
    ),
    Fault(
        "the MPI user's home has another owner",
        "ssh",
        "home",
        THIRD,
        "chown root ~mpi",
        undo="chown mpi ~mpi",
    ),
    Fault(
        "an undeclared key admits the MPI user",
        "ssh",
        "undeclared_keys",
        THIRD,
        "install -d -o mpi -m 700 ~mpi/.ssh"
        " && cat /etc/ssh/ssh_host_ed25519_key.pub >~mpi/.ssh/authorized_keys",
        undo="rm ~mpi/.ssh/authorized_keys",
    ),
    Fault(
        "others can read the user key",
        "ssh",
        "user_key",
        SECOND,
        f"chmod 0644 {ETC}/ssh/id_ed25519",
    ),
    Fault("root owns the user key", "ssh", "user_key", THIRD, f"chown root {ETC}/ssh/id_ed25519"),
    Fault("the user key is missing", "ssh", "user_key", LAUNCHER, f"rm {ETC}/ssh/id_ed25519"),
    Fault(
        "root owns the public key",
        "ssh",
        "user_key",
        SECOND,
        f"chown root {ETC}/ssh/id_ed25519.pub",
    ),
    Fault(
        "host keys are not compared",
        "ssh",
        "ssh_client",
        FIRST,
        # The fault that verify must find; `undo` takes it back.
        f"printf 'Host *\\n StrictHostKeyChecking no\\n' >{SSH_CLIENT}",
        undo=f"rm {SSH_CLIENT}",
    ),
    Fault(
        "a rail loses 5 % of what it receives",
        "ssh",
        "rail_peer",
        FIRST,
        LOSE.format(rail="rail1", share=5 * 2**32 // 100),
        undo="tc qdisc del dev rail1 clsact",
    ),
    Fault(
        "an alias leads to another node",
        "ssh",
        "ssh_login",
        FOURTH,
        f"printf 'Host node01\\n HostName 10.241.0.12\\n' >{SSH_CLIENT}",
        undo=f"rm {SSH_CLIENT}",
    ),
    Fault(
        "the MPI user's ~/.ssh/config has another port",
        "ssh",
        "ssh_client",
        FIRST,
        "mkdir ~mpi/.ssh && printf 'Host node02\\n Port 2222\\n' >~mpi/.ssh/config"
        " && chown -R mpi ~mpi/.ssh && chmod -R go= ~mpi/.ssh",
        undo="rm -r ~mpi/.ssh",
        subject="port",
    ),
    # sshd is not reloaded, as Ansible logs in, too.
    Fault(
        "sshd admits only groups that the MPI user is not in",
        "ssh",
        "sshd_allowgroups",
        SECOND,
        f"echo AllowGroups ops >{SSHD}/60-groups.conf",
        undo=f"rm {SSHD}/60-groups.conf",
    ),
    Fault(
        "sshd takes no signature of the authority's type",
        "ssh",
        "sshd_casignaturealgorithms",
        SECOND,
        f"echo CASignatureAlgorithms rsa-sha2-512 >{SSHD}/60-signatures.conf",
        undo=f"rm {SSHD}/60-signatures.conf",
    ),
    Fault(
        "sshd takes no certificates of users",
        "ssh",
        "sshd_pubkeyacceptedalgorithms",
        THIRD,
        f"echo PubkeyAcceptedAlgorithms ssh-ed25519 >{SSHD}/05-keys.conf",
        undo=f"rm {SSHD}/05-keys.conf",
    ),
    Fault(
        "sshd takes few logins at a time",
        "ssh",
        "sshd_maxstartups",
        THIRD,
        f"echo MaxStartups 3 >{SSHD}/60-startups.conf",
        undo=f"rm {SSHD}/60-startups.conf",
    ),
    Fault(
        "sshd presents no host certificate",
        "ssh",
        "sshd_hostkeyalgorithms",
        LAUNCHER,
        f"echo HostKeyAlgorithms ssh-ed25519 >{SSHD}/05-host.conf",
        undo=f"rm {SSHD}/05-host.conf",
    ),
    Fault(
        "a Match block before ours refuses keys of the MPI user",
        "ssh",
        "sshd_pubkeyauthentication",
        LAUNCHER,
        f"printf 'Match User mpi\\n PubkeyAuthentication no\\n' >{SSHD}/05-site.conf",
        undo=f"rm {SSHD}/05-site.conf",
    ),
    Fault(
        "a variable of Open MPI in /etc/environment",
        "ssh",
        "session_variable",
        FIRST,
        "echo OMPI_MCA_pml=ob1 >>/etc/environment",
        undo="sed -i /^OMPI_MCA_pml/d /etc/environment",
    ),
    Fault(
        "variables of UCX in a profile",
        "ssh",
        "session_variable",
        FOURTH,
        "echo 'export UCX_TLS=tcp,self UCX_NET_DEVICES=mgmt0' >/etc/profile.d/zz-site.sh",
        undo="rm /etc/profile.d/zz-site.sh",
    ),
    Fault(
        "Open MPI's parameters in the MPI user's home",
        "ssh",
        "session_parameter",
        FOURTH,
        AS_USER.format("mkdir -p ~/.openmpi && echo btl = self >~/.openmpi/mca-params.conf"),
        undo="rm -r ~mpi/.openmpi",
    ),
    Fault(
        "a later file lowers the limits of sessions",
        "ssh",
        "session_limit",
        FIRST,
        "echo 'mpi - nofile 64' >/etc/security/limits.d/99-site.conf",
        undo="rm /etc/security/limits.d/99-site.conf",
    ),
    Fault(
        "ulimit in a profile",
        "ssh",
        "session_limit",
        FOURTH,
        "echo ulimit -n 64 >/etc/profile.d/zz-limits.sh",
        undo="rm /etc/profile.d/zz-limits.sh",
    ),
    Fault(
        "another Open MPI first in PATH, by .bashrc",
        "ssh",
        "session_program",
        FIRST,
        "mkdir -p /opt/conda/bin && ln -s /bin/true /opt/conda/bin/orted && "
        r"sed -i '1i export PATH=/opt/conda/bin:$PATH' ~mpi/.bashrc",
        undo="rm -r /opt/conda; sed -i /opt.conda/d ~mpi/.bashrc",
        subject="orted",
    ),
    Fault(
        "a broken mpi4py in the MPI user's home",
        "ssh",
        "session_program",
        FIRST,
        AS_USER.format(
            "d=$(/usr/bin/python3 -m site --user-site)/mpi4py && mkdir -p $d && "
            "echo import nothing_there >$d/__init__.py"
        ),
        undo="rm -r ~mpi/.local/lib",
        subject="mpi4py",
    ),
    Fault(
        "a preloaded library is missing",
        "ssh",
        "session_program",
        FOURTH,
        "echo /usr/lib/libgone.so >/etc/ld.so.preload",
        undo="rm /etc/ld.so.preload",
    ),
    Fault(
        "the MPI user cannot write to /dev/shm",
        "ssh",
        "session_space",
        FOURTH,
        "chmod 0755 /dev/shm",
        undo="chmod 1777 /dev/shm",
    ),
]


def inject(nodes: Nodes, faults: Iterable[Fault] = NODE_FAULTS) -> None:
    for fault in faults:
        nodes.on(fault.host).check_output(fault.by_hand)


def missed(run: Run, faults: Iterable[Fault] = NODE_FAULTS) -> list[str]:
    """Faults without the expected failed check on their host."""
    return [
        f"{fault.host}, {fault.layer}: {fault.name}"
        for fault in faults
        if not any(
            check["name"] == fault.check and fault.subject in ("", check["subject"])
            for check in run.failed(fault.layer, fault.host)
        )
    ]


def surplus(run: Run, faults: Sequence[Fault] = NODE_FAULTS) -> list[Mapping[str, Any]]:
    """Failed checks without a fault, and failures attributed to the wrong host.

    The layer links is excluded: its checks repeat those of both ends.
    """
    made = {(fault.layer, fault.host) for fault in faults}
    return [
        {**check, "host": host}
        for layer, found in run.report["layers"].items()
        for host in found["hosts"]
        if layer != "links"
        for check in run.failed(layer, host)
        if _wrongly_blamed(check, host, faults)
        or ((layer, host) not in made and check["name"] not in ELSEWHERE)
    ]


def _wrongly_blamed(check: Mapping[str, Any], host: str, faults: Iterable[Fault]) -> bool:
    """Whether a failed login is attributed to a host without a fault.

    A fault of the server is attributed to it; faults of names, rails or the client are not.
    """
    if check["name"] != "ssh_login":
        return False
    at = check.get("at", "")
    if at:
        culprits = {f.host for f in faults if f.layer == "ssh" and f.check not in CLIENT}
        return at not in culprits
    ways = {f.host for f in faults if f.layer in ("names", "rails") or f.check in CLIENT}
    return host not in ways


def repairs(run: Run) -> list[list[str]]:
    """Arguments of the repair commands printed by verify, without the inventory."""
    lines = re.findall(r"^repair: ansible-playbook (\S+) -i \S+ (.+)$", run.output, re.MULTILINE)
    return [[playbook, *words.split()] for playbook, words in lines]


def undo(nodes: Nodes, faults: Iterable[Fault] = NODE_FAULTS) -> None:
    """Run the commands that must precede the repair."""
    for fault in faults:
        if fault.undo:
            nodes.on(fault.host).run(fault.undo)
