# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The allreduce smoke test: plan a run, launch it, evaluate its records, and locate a fault."""
