// Package survival computes certificates: whether the protected pods of a ZoneSurvival would all run again after the
// loss of a zone, or of some nodes.
//
// # Contract
//
// [Certify] reads objects and returns statuses. It writes nothing, and modifies none of the objects. The scheduler
// itself answers: each loss is replayed on a copy of the cluster (package sim), with the scheduler's own configuration.
// Pods on nodes that are not ready are displaced first, and waiting pods scheduled, so that the copy is at rest before
// the loss.
//
// A loss has two forms: the Node objects are deleted, or they stay, not ready and tainted. Each is replayed in both.
//
// A protected pod that had a node when the cluster was read and does not run after the loss breaks the certificate,
// whichever way it lost its place. A protected pod that was already waiting is counted and breaks nothing.
//
// Where pods go depends on the order in which controllers replace them, and on ties between nodes and between victims.
// So each loss is replayed several times: first in the order that leaves protected pods the least room (pods that are
// not protected first, then those of a low priority, then small ones), then in random orders. In every other replay, the
// first among them, a pod is made when the scheduler has tried those before it: so one of a low priority may take room
// before one of a high priority is there. One replay in which a pod waits is enough to break the certificate.
//
// A [Certifier] keeps where displaced pods went. When only pods and their controllers have changed, an answer follows
// the cluster: each loss of a zone is replayed once, and the scheduler tries these nodes first. That may break an
// answer that is True or keep it, and only a replay of all losses makes an answer True.
//
// # Memory
//
// Beside the objects, which all copies share, there is one copy with a scheduler at a time. A copy changes no object:
// what changes is another object, which shares with the one before what is the same.
//
// [Hold] computes which reservations a ZoneSurvival with hold should have, so that the displaced pods of any one loss
// find room although other pods take all other room. It is arithmetic over where pods are: nothing is replayed, and a
// certificate tests what is held. [Impaired] counts what is left when a zone is cut off and its pods stay.
//
// [Fingerprint] says whether a cluster has changed in a way that may change an answer.
//
// # Non-goals
//
// A certificate is not a proof over all orders, and does not say how long pods take to start. The package writes no
// reservation.
package survival
