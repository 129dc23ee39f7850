# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems: `options` lists the parts that mount (units, mounts, lustre, lnet), serve
(device, exports, service) and verify them (lustre_health; proof, probe)."""
