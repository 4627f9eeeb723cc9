// Package policies applies the ZoneSpreadPolicies of a snapshot to pods, as ZoneSpread does in a scheduling cycle: what
// is counted for a pod, and what a policy then says about each zone.
//
// # Contract
//
// [Read] takes the policies over zones that count pods, and the workloads of the pods. [Reader.Decide] begins a
// policy's decision about a pod: its key is equal for pods about which the policy decides alike, its queries are what
// has to be counted, and its table is the decision.
//
// A snapshot knows what a policy's status remembers about zones. It does not know which zones the volumes of a waiting
// pod rule out.
//
// # Non-goals
//
// The package has no formula of its own: those of policies are in plugins/zonespread/policy and
// plugins/zonespread/counted.
package policies
