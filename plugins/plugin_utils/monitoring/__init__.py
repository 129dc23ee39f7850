# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What Prometheus, Alertmanager and Grafana need of a cluster: targets and rules from the model
(targets, rules), and dashboards (dashboards). The certificates of exporters: pki."""
