// Package survival computes certificates: whether the protected pods of a ZoneSurvival would all run again after the
// loss of a zone, or of some nodes.
//
// # Contract
//
// [Certify] reads objects and returns statuses. It writes nothing, and modifies none of the objects. The scheduler
// itself answers: each loss is replayed on a copy of the cluster (package sim), with the scheduler's own configuration.
// Waiting pods are scheduled first, so that the copy is at rest before the loss.
//
// A protected pod that ran before and does not run afterwards breaks the certificate, whichever way it lost its place.
// A protected pod that was already waiting is counted and breaks nothing.
//
// Where pods go depends on the order in which controllers replace them and on ties between nodes. So each loss is
// replayed several times: first in the order that leaves protected pods the least room (pods that are not protected
// first, then small ones before large ones), then in random orders. One replay in which a pod waits is enough to break
// the certificate.
//
// There are too many sets of several nodes to lose each set. The package loses those that are likely to be the worst,
// and random sets that together contain all nodes.
//
// A [Certifier] keeps the copies after the loss of each zone. When only pods have changed, the copies follow the
// cluster. Such an answer is that of one replay in which the changed pods come last.
//
// [Hold] computes how much a ZoneSurvival with hold should hold on which nodes, so that the displaced pods of any one
// loss find room there although other pods take all other room. It replays the losses in orders of its own, four times
// as many as a certificate, or as many if they displace few pods, on copies whose nodes have no free room except what
// is held. If pods wait, it opens more room to them. It never preempts pods. A certificate tests what is held, so it
// does not use the orders in which that was found.
//
// [Fingerprint] says whether a cluster has changed in a way that may change an answer.
//
// # Non-goals
//
// A certificate is not a proof over all orders, and does not say how long pods take to start. The package writes no
// reservation.
package survival
