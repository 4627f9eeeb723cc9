// Package ledger tests the ledger of ReserveCache against kube-scheduler's own cache: both are fed the same
// events, and must agree on the pods of each node, on what these request, and on the order of the nodes.
//
// Only sequences that kube-scheduler's handlers produce are compared, since its cache refuses others or ends
// the process. The ledger differs in two ways, which are tested here too:
//
//   - A snapshot of the cache keeps its old order when a node is relabelled to another zone, or is deleted and
//     comes back between two updates of the snapshot, until the number of nodes changes. A snapshot of the
//     ledger follows at once.
//   - A node that turns up as an update while its pods are already accounted for never enters the cache's
//     snapshots. The ledger believes every event of a node.
package ledger
