# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check mode on new nodes: it reports what would change, and writes nothing."""

from __future__ import annotations

MARK = "/run/before-check-mode"
ELSEWHERE = ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp", "/var/log", "/var/lib/systemd"]
"""Directories that a running system writes to. Network state in them is compared separately."""
ELSEWHERE += ["/home/*/.ansible", "/root/.ansible"]
CACHES = ["/var/cache", "/var/lib/apt/lists", "/var/lib/dnf", "/var/lib/rpm", "*/__pycache__"]
"""Caches of programs that only answer queries, such as package managers."""


def written_since(host) -> str:
    skip = " -o ".join(f"-path '{path}'" for path in ELSEWHERE + CACHES)
    return host.check_output(f"find / \\( {skip} \\) -prune -o -newer {MARK} -type f -print")


def kernel_view(host) -> str:
    """Return addresses, routes and network sysctls, without counters and lifetimes.

    IPv4 only: the kernel may add link-local IPv6 addresses at any time.
    """
    return host.check_output(
        "hostname; ip -4 -br address; ip -br link; ip -4 rule; ip -4 route show table all; "
        "sysctl -a --pattern '^net.*(arp|rp_filter)'"
    )


def test_check_mode_tells_and_writes_nothing(nodes, converge):
    names = nodes.group("compute", "launcher")
    before = {}
    for name in names:
        nodes.on(name).check_output(f"touch {MARK} && sleep 0.1")
        before[name] = kernel_view(nodes.on(name))
    run = nodes.play(converge, "--check", "--diff")
    assert run.total("failed") == run.total("unreachable") == 0
    assert run.total("changed") > 0, "a fresh node lacks everything this role promises"
    assert {name: written_since(nodes.on(name)) for name in names} == dict.fromkeys(names, "")
    assert {name: kernel_view(nodes.on(name)) for name in names} == before
