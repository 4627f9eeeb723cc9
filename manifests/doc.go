// Package manifests has the files that users apply to a cluster to run Zonewise in it. They are embedded,
// so that the demo and the tests use exactly the permissions and custom resources that users apply.
//
// # Contract
//
//   - rbac has all permissions of the scheduler. There are no wildcards, no access to secrets and no
//     creation of pods. The schedulers of test/integration have exactly these permissions.
//   - components/controller has the controller beside the scheduler, with its own account: it writes events and its lease, and each
//     part what a ClusterRole of its own says, as survival the status of ZoneSurvivals and their ZoneReservations. components/buy
//     turns on the part buy, components/rebalance the part rebalance, components/gang-budgets the part gang-budgets, and components/deletion-costs
//     the part deletion-costs, with their ClusterRoles. Only components/rebalance-evict lets the controller evict pods, and an admission policy
//     of components/deletion-costs lets it change nothing of them but that annotation.
//   - components/autoscaler-constraints has MutatingAdmissionPolicies that show policies and gangs to autoscalers. They need no permission.
//   - crds is never part of an overlay: removing the scheduler must not remove PodGroups.
//   - The profiles in overlays and kubeadm are copies of those in config, made by go generate and
//     compared by a test.
//   - charts/zonewise has copies of the profiles, the rules and the custom resources, and a test requires that
//     it renders the objects of the overlays.
//
// # Non-goals
//
// The package renders nothing; kubectl does that.
package manifests

//go:generate ./sync.sh
