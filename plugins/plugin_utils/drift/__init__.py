# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Drift: findings of playbooks/drift.yml, rules that ignore some of them, and their history."""
