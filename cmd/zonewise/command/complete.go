package command

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/cluster/snapshot"
)

// completionTimeout is how long the API server may take to complete a word: after that there are no suggestions.
const completionTimeout = 3 * time.Second

// mostNames is the largest number of objects that are listed for a completion.
const mostNames = 1000

// listObjects lists objects of a resource such as deployments.apps, of the cluster or of the file, in a namespace or,
// if it is empty, in all. It is for completions: what cannot be read is not there.
func (f *clusterFlags) listObjects(cmd *cobra.Command, namespace, resource string) (out []client.Object) {
	kinds := snapshot.Kinds()
	at := slices.IndexFunc(kinds, func(k snapshot.Kind) bool { return k.Resource == resource })
	if at < 0 {
		return nil
	}
	if f.snapshotFile != "" {
		s, err := f.loadSnapshot(cmd)
		if err != nil {
			return nil
		}
		return slices.DeleteFunc(s.Objects(), func(obj client.Object) bool {
			return reflect.TypeOf(obj) != reflect.TypeOf(kinds[at].Example()) || namespace != "" && obj.GetNamespace() != namespace
		})
	}
	config, err := f.clientConfig().ClientConfig()
	if err != nil {
		return nil
	}
	c, err := snapshot.NewClient(config)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	list := kinds[at].List()
	if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(mostNames)); err != nil {
		return nil
	}
	_ = snapshot.ForEach(list, func(obj client.Object) { out = append(out, obj) }) // a list has items
	return out
}

func nameOf(obj client.Object) string { return obj.GetName() }

func zoneOf(obj client.Object) string { return obj.GetLabels()[corev1.LabelTopologyZone] }

// completeObjects offers for a flag what objects of a resource, which have no namespace, give.
func (f *clusterFlags) completeObjects(cmd *cobra.Command, flag, resource string, value func(client.Object) string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
		return f.suggest(cmd, "", resource, begin, value), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the flag is registered in the same function
	}
}

// suggest returns the values of objects that begin so, each once.
func (f *clusterFlags) suggest(cmd *cobra.Command, namespace, resource, begin string, value func(client.Object) string) []string {
	var out []string
	for _, obj := range f.listObjects(cmd, namespace, resource) {
		if v := value(obj); v != "" && strings.HasPrefix(v, begin) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// completeSubject offers names of pods, or after a type and in TYPE/NAME those of its objects.
func (f *clusterFlags) completeSubject(cmd *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
	kind, lead := "pod", ""
	if before, after, ok := strings.Cut(begin, "/"); ok {
		kind, lead, begin = before, before+"/", after
	} else if len(args) == 1 {
		kind = args[0]
	}
	subject, known := subjectKinds[strings.ToLower(kind)]
	namespace, err := f.namespaceScope()
	if !known || err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, resource := range subject.resources {
		for _, name := range f.suggest(cmd, namespace, resource, begin, nameOf) {
			out = append(out, lead+name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
