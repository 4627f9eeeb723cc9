package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/test/chaos/history"
)

// burstTimeout is how long a fault waits for a burst; without one it goes on.
const burstTimeout = 10 * time.Second

// faults does to a cluster what a plan says.
type faults struct {
	cluster     *cluster
	replicas    *replicas
	controllers *controllers
	logf        func(format string, args ...any)

	mu   sync.Mutex // guards what follows
	done []history.Fault
}

// begun is what has been done, and how it ends.
type begun struct {
	target string
	end    func(context.Context) error
}

// cause does one fault from begin to end.
func (f *faults) cause(ctx context.Context, what fault) error {
	record := history.Fault{Kind: what.kind, Began: time.Now(), Nodes: strings.HasPrefix(what.kind, "node ")}
	b, err := f.begin(ctx, what)
	if err != nil {
		return fmt.Errorf("%s: %w", what.kind, err)
	}
	record.Target = b.target
	f.logf("%s %s", what.kind, b.target)
	if err := pause(ctx, what.lasts); err != nil {
		return err
	}
	if err := b.end(ctx); err != nil {
		return fmt.Errorf("%s: to its end: %w", what.kind, err)
	}
	record.Ended = time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = append(f.done, record)
	return nil
}

// all returns what has been done.
func (f *faults) all() []history.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(slices.Values(f.done), func(a, b history.Fault) int { return a.Began.Compare(b.Began) })
}

func (f *faults) begin(ctx context.Context, what fault) (*begun, error) {
	switch what.kind {
	case "leader killed":
		return f.signalLeader(ctx, syscall.SIGKILL)
	case "leader asked to end":
		return f.signalLeader(ctx, syscall.SIGTERM)
	case "leader stopped":
		f.burst(ctx)
		return f.signalLeader(ctx, syscall.SIGSTOP)
	case apiServerRestarted:
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM}[what.a%2]
		return &begun{target: sig.String(), end: func(ctx context.Context) error {
			if err := f.cluster.apiserver.start(); err != nil {
				return err
			}
			return f.cluster.serves(ctx)
		}}, f.cluster.apiserver.end(sig)
	case etcdKilled:
		return &begun{end: func(ctx context.Context) error {
			if err := f.cluster.etcd.start(); err != nil {
				return err
			}
			return f.cluster.serves(ctx)
		}}, f.cluster.etcd.end(syscall.SIGKILL)
	case "binds refused":
		return f.refuseBinds(ctx)
	case "webhook times out":
		return f.hangWebhook(ctx, []admissionv1.FailurePolicyType{admissionv1.Fail, admissionv1.Ignore}[what.a%2])
	case "custom resources deleted":
		return &begun{end: f.cluster.installCRDs}, f.cluster.uninstallCRDs(ctx)
	}
	zone := zones[what.a%len(zones)]
	return f.changeNode(ctx, what.kind, newNode(zone, 1+what.b%nodesPerZone))
}

// signalLeader sends a signal to the leader; the fault ends when a replica leads.
func (f *faults) signalLeader(ctx context.Context, sig syscall.Signal) (*begun, error) {
	r, err := f.replicas.leader(ctx)
	if err != nil {
		return nil, err
	}
	return &begun{target: r.name, end: func(ctx context.Context) error {
		if sig == syscall.SIGSTOP {
			if err := r.signal(syscall.SIGCONT); err != nil {
				return err
			}
		}
		_, err := f.replicas.leader(ctx)
		return err
	}}, r.signal(sig)
}

// burst gives the leader so much to bind that most of it waits for its turn.
func (f *faults) burst(ctx context.Context) {
	f.controllers.apply(step{kind: "burst"})
	for deadline := time.Now().Add(burstTimeout); time.Now().Before(deadline); {
		if f.controllers.waiting() > schedulerQPS || pause(ctx, tick) != nil {
			return
		}
	}
}

// refuseBinds has an admission policy refuse all binds.
func (f *faults) refuseBinds(ctx context.Context) (*begun, error) {
	meta := metav1.ObjectMeta{Name: "no-binds.chaos.zonewise.dev"}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/binding"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "no binds now"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: meta.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	for _, o := range []client.Object{policy, binding} {
		if err := persist(ctx, func() error { return f.cluster.client.Create(ctx, o) }); err != nil {
			return nil, err
		}
	}
	return &begun{end: func(ctx context.Context) error {
		for _, o := range []client.Object{binding, policy} {
			if err := persist(ctx, func() error { return client.IgnoreNotFound(f.cluster.client.Delete(ctx, o)) }); err != nil {
				return err
			}
		}
		return f.bindsAreAllowed(ctx)
	}}, nil
}

// hangWebhook has an admission webhook for binds and for the statuses of custom resources accept connections and say
// nothing. Then each of these requests takes a second, and fails if the policy says so.
func (f *faults) hangWebhook(ctx context.Context, policy admissionv1.FailurePolicyType) (*begun, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts for it
	if err != nil {
		return nil, err
	}
	rule := func(group, version, resource string, on admissionv1.OperationType) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{on},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
		}
	}
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "silence.chaos.zonewise.dev"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "silence.chaos.zonewise.dev", FailurePolicy: &policy, TimeoutSeconds: ptr.To[int32](1),
			SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionv1.WebhookClientConfig{URL: ptr.To("https://" + listener.Addr().String())},
			Rules: []admissionv1.RuleWithOperations{
				rule("", "v1", "pods/binding", admissionv1.Create),
				rule("scheduling.x-k8s.io", "*", "podgroups/status", admissionv1.Update),
				rule("zonewise.dev", "*", "*/status", admissionv1.Update),
			},
		}},
	}
	if err := persist(ctx, func() error { return f.cluster.client.Create(ctx, hook) }); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &begun{target: string(policy), end: func(ctx context.Context) error {
		err := persist(ctx, func() error { return client.IgnoreNotFound(f.cluster.client.Delete(ctx, hook)) })
		if err := errors.Join(err, listener.Close()); err != nil {
			return err
		}
		return f.bindsAreAllowed(ctx)
	}}, nil
}

// bindsAreAllowed waits until the API server has noticed that what refused binds is gone.
func (f *faults) bindsAreAllowed(ctx context.Context) error {
	// Admission is asked before the pod is looked for, of which there is none.
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "no-such-pod"}}
	return persist(ctx, func() error {
		target := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: v1.ObjectReference{Kind: "Node", Name: "a1"}}
		err := f.cluster.client.SubResource("binding").Create(ctx, pod, target, &client.SubResourceCreateOptions{CreateOptions: client.CreateOptions{DryRun: []string{metav1.DryRunAll}}})
		return client.IgnoreNotFound(err)
	})
}

// changeNode does something to a node, and undoes it.
func (f *faults) changeNode(ctx context.Context, kind string, node *v1.Node) (*begun, error) {
	name := node.Name
	if kind == "node deleted" {
		err := persist(ctx, func() error { return client.IgnoreNotFound(f.cluster.client.Delete(ctx, node.DeepCopy())) })
		return &begun{target: name, end: func(ctx context.Context) error {
			return persist(ctx, func() error { return client.IgnoreAlreadyExists(f.cluster.client.Create(ctx, node.DeepCopy())) })
		}}, err
	}
	zone := history.Zone(node)
	edit := func(n *v1.Node, broken bool) {
		switch kind {
		case "node cordoned":
			n.Spec.Unschedulable = broken
		case "node not ready":
			n.Spec.Taints = nil
			if broken {
				n.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule}}
			}
		case "node moved to another zone":
			n.Labels[v1.LabelTopologyZone] = zone
			if broken {
				n.Labels[v1.LabelTopologyZone] = zones[(slices.Index(zones, zone)+1)%len(zones)]
			}
		}
	}
	change := func(ctx context.Context, broken bool) error {
		return persist(ctx, func() error {
			n := &v1.Node{}
			if err := f.cluster.client.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
				return err
			}
			before := client.MergeFrom(n.DeepCopy())
			edit(n, broken)
			if err := f.cluster.client.Patch(ctx, n, before); err != nil || kind != "node not ready" {
				return err
			}
			before = client.MergeFrom(n.DeepCopy())
			n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = v1.ConditionTrue, metav1.Now()
			if broken {
				n.Status.Conditions[0].Status = v1.ConditionFalse
			}
			return f.cluster.client.Status().Patch(ctx, n, before)
		})
	}
	return &begun{target: name, end: func(ctx context.Context) error { return change(ctx, false) }}, change(ctx, true)
}
