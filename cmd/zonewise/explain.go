package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cmd/zonewise/explain"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/cmd/zonewise/world"
)

const explainHelp = `Explain why a pod or a gang waits: what each zone is to it, with the counts, caps
and holds that are in the way and whose they are, what the scheduler said, and
what would let it go. Of a pod that is bound it says where.

The argument is the name of a pod or of a PodGroup, or pod/NAME or podgroup/NAME.

Exit codes: 0 explained; 1 the cluster could not be read, or there is no such pod
or PodGroup; 2 a flag or the argument is wrong.`

func newExplain() *cobra.Command {
	var flags clusterFlags
	cmd := &cobra.Command{
		Use:   "explain POD|PODGROUP",
		Short: "Explain why a pod or a gang waits, and what would let it go",
		Long:  explainHelp,
		Example: `  zonewise explain web-7d4b9c-x2x5v -n shop
  zonewise explain podgroup/train -n ml
  zonewise explain web-7d4b9c-x2x5v --snapshot cluster.json.gz -o yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.ExactArgs(1)(cmd, args); err != nil {
				return usageError{fmt.Errorf("name one pod or PodGroup, got %d arguments", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			kind, name, err := subject(args[0])
			if err != nil {
				return err
			}
			namespace, err := flags.scope()
			if err != nil {
				return oneLine(err)
			}
			w, c, err := flags.world(cmd)
			if err != nil {
				return err
			}
			report, err := explainOne(cmd.Context(), w, c, kind, namespace, name)
			if err != nil {
				return err
			}
			return flags.write(cmd, report, func(out io.Writer, style show.Style) error { return report.Text(out, style, w.Now) })
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags.register(cmd)
	return cmd
}

// subject splits the argument. The kind is empty when it is not said.
func subject(arg string) (kind, name string, err error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		return "", arg, nil
	}
	switch strings.ToLower(kind) {
	case "pod", "pods", "po":
		return "pod", name, nil
	case "podgroup", "podgroups", "pg":
		return "podgroup", name, nil
	}
	return "", "", usageError{fmt.Errorf("%q: want a name, pod/NAME or podgroup/NAME", arg)}
}

func explainOne(ctx context.Context, w *world.World, c client.Client, kind, namespace, name string) (*explain.Report, error) {
	if kind != "podgroup" {
		if p := w.Find(namespace, name); p != nil {
			return explain.Explain(w, p, eventsOf(ctx, c, namespace, "Pod", name)), nil
		}
		for i := range w.Snapshot.Pods {
			if p := &w.Snapshot.Pods[i]; p.Namespace == namespace && p.Name == name {
				state := "has finished"
				if p.DeletionTimestamp != nil {
					state = "is being deleted"
				}
				return nil, fmt.Errorf("pod %s/%s %s: it does not wait", namespace, name, state)
			}
		}
	}
	if kind != "pod" {
		if report := explain.Gang(w, namespace+"/"+name, eventsOf(ctx, c, namespace, "PodGroup", name)); report != nil {
			return report, nil
		}
	}
	switch kind {
	case "pod":
		return nil, fmt.Errorf("there is no pod %s in namespace %s", name, namespace)
	case "podgroup":
		return nil, fmt.Errorf("there is no PodGroup %s in namespace %s", name, namespace)
	}
	return nil, fmt.Errorf("there is no pod and no PodGroup %s in namespace %s", name, namespace)
}

// eventsOf reads the events about an object. That somebody may not read them is no reason to say nothing.
func eventsOf(ctx context.Context, c client.Client, namespace, kind, name string) []eventsv1.Event {
	if c == nil {
		return nil // a snapshot has none
	}
	var list eventsv1.EventList
	selector := fields.SelectorFromSet(fields.Set{"regarding.kind": kind, "regarding.name": name})
	if err := c.List(ctx, &list, client.InNamespace(namespace), client.MatchingFieldsSelector{Selector: selector}); err != nil {
		if apierrors.IsForbidden(err) {
			return []eventsv1.Event{{Reason: "note", Note: "you may not list events: the scheduler's own words are left out"}}
		}
		return []eventsv1.Event{{Reason: "note", Note: "the events could not be read: " + err.Error()}}
	}
	return list.Items
}
