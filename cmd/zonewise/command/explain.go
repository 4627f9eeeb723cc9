package command

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/internal/program"
	"zonewise.dev/sim"
)

const explainHelp = `Explain why a pod or a gang waits: for each zone the nodes, counts, caps and holds,
then what the scheduler said, and what would help. For a bound pod it says where
the pod would go now, and what each plugin gives the best nodes and its own.

The scheduler itself answers, on a copy of the cluster, with its plugins and the
configuration of --config.

Name a pod or a PodGroup, TYPE/NAME, or TYPE NAME. Of a workload, such as
deployment/web, it is the pod that has waited longest, or one that does not wait. If
both APIs have a PodGroup of that name: podgroup.scheduling.k8s.io/NAME, or with x-k8s.

Exit codes: 0 explained; 1 the cluster could not be read, or there is no such
object; 2 a flag or the argument is wrong.`

func newExplain(registry frameworkruntime.Registry) *cobra.Command {
	flags := &clusterFlags{registry: registry}
	cmd := &cobra.Command{
		Use:   "explain (NAME | TYPE/NAME | TYPE NAME)",
		Short: "Explain why a pod or a gang waits, and what would help",
		Long:  explainHelp,
		Example: `  zonewise explain web-7d4b9c-x2x5v -n shop
  zonewise explain podgroup/train -n ml
  zonewise explain deployment web -n shop
  zonewise explain web-7d4b9c-x2x5v --snapshot cluster.json.gz -o yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return program.Usage(fmt.Errorf("want a NAME, TYPE/NAME or TYPE NAME, got %d arguments", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.checkFlags(); err != nil {
				return err
			}
			kind, name, err := parseSubject(args...)
			if err != nil {
				return err
			}
			options, err := flags.schedulerOptions(cmd.Context(), cmd.InOrStdin())
			if err != nil {
				return err
			}
			namespace, err := flags.namespaceScope()
			if err != nil {
				return err
			}
			c, connected, err := flags.readCensus(cmd)
			if err != nil {
				return err
			}
			if err := flags.checkNamespace(c.Snapshot); err != nil {
				return err
			}
			findSchedulers(&options, c.Snapshot)
			line := flags.progress(cmd)
			line.show("asking the scheduler")
			x := &explanation{Explainer: explain.Explainer{Census: c, Options: options, Command: flags.invocation()}, client: connected}
			report, err := x.explainSubject(cmd.Context(), kind, namespace, name)
			line.clear()
			if err != nil {
				return err
			}
			return flags.writeOutput(cmd, "Explanation", report, func(out io.Writer, style show.Style) error { return report.Text(out, style, c.Now) })
		},
		ValidArgsFunction: flags.completeSubject,
	}
	flags.register(cmd)
	flags.registerScheduler(cmd)
	return cmd
}

// The kinds of PodGroups that the argument may name: of either API, or of one.
const (
	podGroup    = "podgroup"
	crdGroup    = "podgroup.scheduling.x-k8s.io"
	nativeGroup = "podgroup.scheduling.k8s.io"
)

// subjectKind is a kind of objects that can be explained: a pod, a PodGroup, or a workload by its kind.
type subjectKind struct {
	kind      string
	resources []string // in a snapshot
}

// subjectKinds has the kinds by the names that kubectl takes for them.
var subjectKinds = func() map[string]subjectKind {
	const crds, natives = "podgroups.scheduling.x-k8s.io", "podgroups.scheduling.k8s.io"
	out := map[string]subjectKind{}
	for names, kind := range map[string]subjectKind{
		"pod pods po":                                     {"pod", []string{"pods"}},
		"podgroup podgroups pg":                           {podGroup, []string{crds, natives}},
		crdGroup + " " + crds:                             {crdGroup, []string{crds}},
		nativeGroup + " " + natives:                       {nativeGroup, []string{natives}},
		"deployment deployments deploy":                   {"Deployment", []string{"deployments.apps"}},
		"replicaset replicasets rs":                       {"ReplicaSet", []string{"replicasets.apps"}},
		"statefulset statefulsets sts":                    {"StatefulSet", []string{"statefulsets.apps"}},
		"daemonset daemonsets ds":                         {"DaemonSet", []string{"daemonsets.apps"}},
		"job jobs":                                        {"Job", []string{"jobs.batch"}},
		"replicationcontroller replicationcontrollers rc": {"ReplicationController", []string{"replicationcontrollers"}},
	} {
		for name := range strings.FieldsSeq(names) {
			out[name] = kind
			if group, ok := strings.CutPrefix(kind.resources[0], name+"."); ok { // as in deployments.apps
				out[name+"."+group] = kind
			}
		}
	}
	return out
}()

// parseSubject reads a NAME, TYPE/NAME or TYPE NAME. The kind is empty if no type is named.
func parseSubject(args ...string) (kind, name string, err error) {
	given := strings.Join(args, "/")
	wrong := program.Usage(fmt.Errorf("%q: want a name, pod/NAME, podgroup/NAME or the like for a workload, and the namespace in --namespace", given))
	kind, name, ok := strings.Cut(given, "/")
	switch {
	case !ok && given != "":
		return "", given, nil
	case name == "" || strings.Contains(name, "/"):
		return "", "", wrong
	}
	if subject, ok := subjectKinds[strings.ToLower(kind)]; ok {
		return subject.kind, name, nil
	}
	return "", "", wrong
}

// explanation is one run of the command.
type explanation struct {
	explain.Explainer

	client client.Client // nil with a file
}

func (x *explanation) explainSubject(ctx context.Context, kind, namespace, name string) (*explain.Report, error) {
	if kind == "" || kind == "pod" {
		if p := x.Census.FindPod(namespace, name); p != nil {
			return x.Pod(ctx, p, eventsOf(ctx, x.client, namespace, schema.GroupKind{Kind: "Pod"}, name, p.UID))
		}
		for _, p := range snapshot.List[*corev1.Pod](x.Census.Snapshot) {
			if p.Namespace == namespace && p.Name == name {
				state := "has finished"
				if p.DeletionTimestamp != nil {
					state = "is being deleted"
				}
				return nil, fmt.Errorf("pod %s/%s %s: it does not wait", namespace, name, state)
			}
		}
	}
	if isWorkload(kind) {
		return x.explainWorkload(ctx, kind, namespace, name)
	}
	if kind != "pod" {
		var found []*census.Gang
		for _, key := range []string{census.Key(namespace, name, false), census.Key(namespace, name, true)} {
			if g := x.Census.Gang(key); g != nil && isOfKind(g, kind) {
				found = append(found, g)
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return x.Gang(ctx, found[0].Key, eventsOf(ctx, x.client, namespace, groupKindOf(found[0]), name, ""))
		default:
			return nil, program.Usage(fmt.Errorf("there are two PodGroups %s in namespace %s: want %s/%s or %s/%s", name, namespace, crdGroup, name, nativeGroup, name))
		}
	}
	absent := map[string]string{"pod": "no pod", "": "no pod and no PodGroup"}[kind]
	if absent == "" {
		absent = "no PodGroup"
	}
	elsewhere := ""
	if namespaces := x.namespacesWith(kind, name); len(namespaces) > 0 {
		elsewhere = "; there is one in " + strings.Join(namespaces, ", ") + ": set --namespace"
	}
	return nil, fmt.Errorf("there is %s %s in namespace %s%s", absent, name, namespace, elsewhere)
}

func isWorkload(kind string) bool {
	return !slices.Contains([]string{"", "pod", podGroup, crdGroup, nativeGroup}, kind)
}

// explainWorkload explains a pod of a workload: the one that has waited longest, or else the first that runs.
func (x *explanation) explainWorkload(ctx context.Context, kind, namespace, name string) (*explain.Report, error) {
	var owned []*census.Pod
	for _, p := range x.Census.PodsIn(namespace) {
		over := metav1.GetControllerOfNoCopy(p.Pod)
		if over != nil && over.Kind == kind && over.Name == name || x.Census.Workload(p.Pod) == kind+" "+namespace+"/"+name {
			owned = append(owned, p)
		}
	}
	if len(owned) == 0 {
		return nil, fmt.Errorf("there is no pod of %s %s in namespace %s", kind, name, namespace)
	}
	waiting := slices.DeleteFunc(slices.Clone(owned), func(p *census.Pod) bool { return !p.Waits() })
	chosen, which := owned[0], "no pod of it waits, this is one of them"
	if len(waiting) > 0 {
		chosen = slices.MinFunc(waiting, func(a, b *census.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		which = "this is the one that has waited longest"
	}
	report, err := x.explainSubject(ctx, "pod", namespace, chosen.Name)
	if err == nil {
		report.Gaps = append([]string{fmt.Sprintf("%s %s/%s: %d of %s without a node; %s", kind, namespace, name, len(waiting), show.Plural(len(owned), "pod"), which)}, report.Gaps...)
	}
	return report, err
}

// namespacesWith returns the namespaces that have a subject of that name, in order.
func (x *explanation) namespacesWith(kind, name string) []string {
	found := map[string]bool{}
	if kind == "" || kind == "pod" {
		for _, p := range x.Census.Pods {
			found[p.Namespace] = found[p.Namespace] || p.Name == name
		}
	}
	if kind != "pod" {
		for _, key := range x.Census.GangKeys() {
			if g := x.Census.Gang(key); g != nil && g.Name == name && isOfKind(g, kind) {
				found[g.Namespace] = true
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, has bool) bool { return !has })
	return slices.Sorted(maps.Keys(found))
}

// isOfKind reports whether a gang's PodGroup is of the API that the kind names.
func isOfKind(g *census.Gang, kind string) bool {
	return (!g.Native || kind != crdGroup) && (g.Native || kind != nativeGroup)
}

func groupKindOf(g *census.Gang) schema.GroupKind {
	if g.Native {
		return schema.ParseGroupKind(sim.NativeGangKind)
	}
	return schema.ParseGroupKind(sim.GangKind)
}

// eventsOf reads the events about an object, whatever version of its API they name. Without the permission the rest is
// still explained. With a uid, events of a former object of that name are left out.
func eventsOf(ctx context.Context, c client.Client, namespace string, kind schema.GroupKind, name string, uid types.UID) []eventsv1.Event {
	if c == nil {
		return nil // a snapshot has no events
	}
	var list eventsv1.EventList
	selector := fields.SelectorFromSet(fields.Set{"regarding.kind": kind.Kind, "regarding.name": name})
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selector}); err != nil {
		note := "the events could not be read: " + err.Error()
		if apierrors.IsForbidden(err) {
			note = "you may not list events: what the scheduler said is left out"
		}
		return []eventsv1.Event{{Reason: "note", Note: note}}
	}
	return slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.GroupVersionKind().Group != kind.Group || uid != "" && e.Regarding.UID != uid
	})
}
