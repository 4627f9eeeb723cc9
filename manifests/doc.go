// Package manifests has what is applied to a cluster to run Zonewise in it, as files, so that a program
// applies exactly what a person would: the demo and the tests take the permissions and the custom
// resources from here.
//
// # Contract
//
//   - rbac is all that the scheduler may do. It holds no wildcard, no secret and no creation of pods, and
//     a test under test/integration runs a scheduler with nothing else.
//   - crds is never part of an overlay: removing the scheduler must not remove anybody's PodGroups.
//   - The profiles in overlays and kubeadm are copies of those in config, made by go generate and
//     compared by a test.
//   - charts/zonewise has copies of the profiles, the rules and the custom resources, and a test requires that
//     it renders the objects of the overlays.
//
// # Non-goals
//
// The package renders nothing: kustomizations are for kubectl.
package manifests

//go:generate ./sync.sh
