#!/bin/sh
# Copies the profiles of config/ to where kustomize reads them: kustomize refuses files outside the
# directory of a kustomization, and what is applied must be in one place. Run by
# "go generate ./manifests"; a test compares.
set -eu
cd "$(dirname "$0")"

# with_note SOURCE says where to edit, above the contents of its input.
with_note() {
	printf '# Copied from %s by "go generate ./manifests": edit it there.\n\n' "$1"
	cat
}

with_note config/second-scheduler.yaml <../config/second-scheduler.yaml >overlays/second-scheduler/config.yaml
with_note config/zonewise.yaml <../config/zonewise.yaml >overlays/replace-kube-scheduler/config.yaml
# A static pod has no ServiceAccount: it uses the kubeconfig that kubeadm wrote for kube-scheduler.
sed -e 's/^# clientConnection:$/clientConnection:/' -e 's/^#   kubeconfig: /  kubeconfig: /' ../config/zonewise.yaml |
	with_note config/zonewise.yaml >kubeadm/zonewise.yaml

# The chart: helm reads nothing outside of it either.
chart=charts/zonewise
with_note config/zonewise.yaml <../config/zonewise.yaml >$chart/files/config/replace.yaml
with_note config/second-scheduler.yaml <../config/second-scheduler.yaml >$chart/files/config/second.yaml
with_note manifests/rbac/clusterrole.yaml <rbac/clusterrole.yaml >$chart/files/rbac/clusterrole.yaml
with_note manifests/rbac/plugins/clusterrole.yaml <rbac/plugins/clusterrole.yaml >$chart/files/rbac/clusterrole-plugins.yaml
with_note manifests/components/native-gangs/clusterrole.yaml <components/native-gangs/clusterrole.yaml >$chart/files/rbac/native-gangs.yaml
with_note manifests/rbac/role.yaml <rbac/role.yaml >$chart/files/rbac/role.yaml
with_note manifests/rbac/viewer/clusterrole.yaml <rbac/viewer/clusterrole.yaml >$chart/files/rbac/viewer.yaml
with_note manifests/components/controller/clusterrole.yaml <components/controller/clusterrole.yaml >$chart/files/rbac/controller.yaml
with_note manifests/components/controller/survival.yaml <components/controller/survival.yaml >$chart/files/rbac/controller-survival.yaml
with_note manifests/components/buy/clusterrole.yaml <components/buy/clusterrole.yaml >$chart/files/rbac/controller-buy.yaml
with_note manifests/components/gang-budgets/clusterrole.yaml <components/gang-budgets/clusterrole.yaml >$chart/files/rbac/controller-gang-budgets.yaml
with_note manifests/components/rebalance/clusterrole.yaml <components/rebalance/clusterrole.yaml >$chart/files/rbac/controller-rebalance.yaml
with_note manifests/components/rebalance-evict/clusterrole.yaml <components/rebalance-evict/clusterrole.yaml >$chart/files/rbac/controller-rebalance-evict.yaml
with_note manifests/components/deletion-costs/clusterrole.yaml <components/deletion-costs/clusterrole.yaml >$chart/files/rbac/controller-deletion-costs.yaml
with_note manifests/components/deletion-costs/admission.yaml <components/deletion-costs/admission.yaml >$chart/files/deletion-costs-admission.yaml
for name in policies gangs nativegangs; do
	with_note manifests/components/autoscaler-constraints/$name.yaml <components/autoscaler-constraints/$name.yaml >$chart/files/constraints-$name.yaml
done
with_note manifests/monitoring/rules.yaml <monitoring/rules.yaml >$chart/files/alerts.yaml
for crd in crds/*.yaml; do
	[ "$crd" = crds/kustomization.yaml ] || cp "$crd" $chart/crds/
done
