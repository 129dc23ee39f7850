# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A connection that is remote in name only: commands run here, Ansible believes they run there."""

from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection.local import Connection as LocalConnection

DOCUMENTATION = r"""
name: looped
short_description: Local commands under another name
description: For the tests of the summary callback.
author: Baremetal MPI RoCE founders (@baremetal)
extends_documentation_fragment: [connection_pipelining]
"""


class Connection(LocalConnection):
    transport = "looped"

    def _connect(self):
        if self._play_context.remote_addr == "192.0.2.1":
            raise AnsibleConnectionFailure("192.0.2.1 is for documentation only")
        return super()._connect()
