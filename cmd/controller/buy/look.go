package buy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/buy"
	"zonewise.dev/internal/message"
)

// fieldOwner is the field manager of what the part applies. It never changes: what another manager has applied would
// stay.
const fieldOwner = client.FieldOwner("zonewise-buy")

// contentAnnotation has a digest of what was applied as a PodTemplate, which the API server has completed since, and
// the generation that the PodTemplate got by that.
const contentAnnotation = "zonewise.dev/content"

var errNotInstalled = errors.New("the cluster has no CapacityBuffers of " + buy.Group)

// existing is what the API server has of ours, by owner and name.
type existing struct {
	version   schema.GroupVersionKind
	buffers   map[types.UID]map[types.NamespacedName]*unstructured.Unstructured
	templates map[types.UID]map[types.NamespacedName]*v1.PodTemplate
}

// planned is what is asked for from now on, and what was answered to what was asked before, by name.
type planned struct {
	buffers []buy.Buffer
	atMax   bool
	answers map[string][]metav1.Condition
}

// askForAll asks for what is wanted, and reports whether objects of the part were left that no demand names, or may
// have been: the next look is to see that they are gone. What goes wrong is in the conditions, and is tried again then.
func (c *Controller) askForAll(ctx context.Context, buyers []*buyer, now time.Time) (left bool) {
	logger := klog.FromContext(ctx)
	has, err := c.listOwned(ctx)
	if err != nil && !errors.Is(err, errNotInstalled) {
		logger.Error(err, "Cannot read what is asked for")
	}
	all := map[types.UID]figures{}
	for _, b := range buyers {
		before := b.object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy has the type of the original
		switch {
		case b.demand == nil:
			b.withdraw(now)
		case err != nil:
			b.setCondition(metav1.ConditionFalse, reasonOf(err), message.OneLine(err), now)
		default:
			next := planFor(b.demand, has.buffers[b.uid()], now)
			b.reportAsked(&next, c.applyPlanned(ctx, b.demand, &next, has), now)
		}
		c.patchStatus(ctx, before, b.object)
		if status := *b.status; status != nil {
			kind := b.demand.Owner.Kind
			all[b.uid()] = figures{kind: kind, name: b.object.GetName(), wanted: status.Wanted, asked: status.Asked}
		}
	}
	c.mu.Lock()
	c.asked = all
	c.mu.Unlock()
	if err != nil {
		return !errors.Is(err, errNotInstalled)
	}
	return c.deleteUnplanned(ctx, has)
}

// reasonOf is the reason of the condition Buying for an error.
func reasonOf(err error) string {
	if errors.Is(err, errNotInstalled) {
		return v1alpha1.ReasonNotInstalled
	}
	return v1alpha1.ReasonNotWritten
}

// listOwned lists what is ours.
func (c *Controller) listOwned(ctx context.Context) (*existing, error) {
	out := &existing{
		buffers:   map[types.UID]map[types.NamespacedName]*unstructured.Unstructured{},
		templates: map[types.UID]map[types.NamespacedName]*v1.PodTemplate{},
	}
	list := &unstructured.UnstructuredList{}
	err := errNotInstalled
	for _, version := range buy.Versions() {
		kind := version
		kind.Kind += "List"
		list.SetGroupVersionKind(kind)
		err = c.shared.Client.List(ctx, list, client.HasLabels{buy.OwnerLabel})
		if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
			out.version = version
			break
		}
		err = errNotInstalled
	}
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		addByOwner(out.buffers, &list.Items[i])
	}
	var templates v1.PodTemplateList
	if err := c.shared.Client.List(ctx, &templates, client.HasLabels{buy.OwnerLabel}); err != nil {
		return nil, err
	}
	for i := range templates.Items {
		addByOwner(out.templates, &templates.Items[i])
	}
	return out, nil
}

// addByOwner adds an object by its owner, if that is the one in its label.
func addByOwner[T client.Object](to map[types.UID]map[types.NamespacedName]T, obj T) {
	uid := types.UID(obj.GetLabels()[buy.OwnerLabel])
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil || owner.UID != uid || owner.APIVersion != v1alpha1.SchemeGroupVersion.String() {
		return
	}
	if to[uid] == nil {
		to[uid] = map[types.NamespacedName]T{}
	}
	to[uid][client.ObjectKeyFromObject(obj)] = obj
}

// planFor plans on what is asked for in the namespace that the object names.
func planFor(d *buy.Demand, has map[types.NamespacedName]*unstructured.Unstructured, now time.Time) planned {
	out := planned{answers: map[string][]metav1.Condition{}}
	var asked []buy.Buffer
	for key, u := range has {
		if key.Namespace == d.Buy.Namespace {
			asked = append(asked, buy.Read(u))
			out.answers[key.Name] = buy.Conditions(u)
		}
	}
	out.buffers, out.atMax = d.Plan(asked, now)
	return out
}

// applyPlanned makes the API server's objects what is planned, and takes those that stay out of what exists. After the
// first error it asks for no more; what was not asked for then counts as it was.
func (c *Controller) applyPlanned(ctx context.Context, d *buy.Demand, next *planned, has *existing) error {
	buffers, templates := has.buffers[d.Owner.UID], has.templates[d.Owner.UID]
	var first error
	for i := range next.buffers {
		b := &next.buffers[i]
		key := types.NamespacedName{Namespace: d.Buy.Namespace, Name: b.Name}
		before := buffers[key]
		if b.Asked > 0 || first != nil {
			delete(buffers, key)
			template := templates[key]
			delete(templates, key)
			if first == nil {
				first = c.applyBuffer(ctx, d, b, before, template, has.version)
			}
		}
		if first != nil {
			b.Asked = 0
			if before != nil {
				b.Asked = buy.Read(before).Asked
			}
		}
	}
	if first != nil { // nothing is taken away in another namespace before it is asked for in this one
		elsewhere := func(key types.NamespacedName) bool { return key.Namespace != d.Buy.Namespace }
		maps.DeleteFunc(buffers, func(key types.NamespacedName, _ *unstructured.Unstructured) bool { return elsewhere(key) })
		maps.DeleteFunc(templates, func(key types.NamespacedName, _ *v1.PodTemplate) bool { return elsewhere(key) })
	}
	return first
}

// applyBuffer applies the two objects of a buffer where they are not as they should be: the template first, since it is
// what the other refers to.
func (c *Controller) applyBuffer(
	ctx context.Context, d *buy.Demand, b *buy.Buffer, before *unstructured.Unstructured, template *v1.PodTemplate,
	version schema.GroupVersionKind,
) error {
	if b.Requests != nil {
		if err := c.applyTemplate(ctx, d.PodTemplate(b), template); err != nil {
			return fmt.Errorf("PodTemplate %s/%s: %w", d.Buy.Namespace, b.Name, err)
		}
	}
	u := d.CapacityBuffer(b, version)
	if before != nil && asksTheSame(before, u) {
		return nil
	}
	if err := c.applyObject(ctx, u, before != nil); err != nil {
		return fmt.Errorf("%s %s/%s: %w", buy.Kind, u.GetNamespace(), u.GetName(), err)
	}
	klog.FromContext(ctx).V(2).Info(
		"Asked an autoscaler for room", "owner", d.Owner.Name, "zone", b.Zone, "pods", b.Asked,
	)
	return nil
}

// applyTemplate makes a PodTemplate what is wanted. One whose pods somebody else has changed is replaced by a new
// one: what another manager has added would stay.
func (c *Controller) applyTemplate(ctx context.Context, wanted, present *v1.PodTemplate) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(wanted)
	if err != nil {
		return err
	}
	sum, err := digestOf(content)
	if err != nil {
		return err
	}
	generation := int64(1) // the API server counts the changes of the pods
	if present != nil {
		last, lastGeneration, _ := strings.Cut(present.Annotations[contentAnnotation], "/")
		switch {
		case lastGeneration != strconv.FormatInt(present.Generation, 10):
			if err := c.shared.Client.Delete(ctx, present, client.Preconditions{UID: &present.UID}); client.IgnoreNotFound(err) != nil {
				return err
			}
			present = nil
		case last == sum:
			return nil
		default:
			generation += present.Generation
		}
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAnnotations(map[string]string{contentAnnotation: fmt.Sprintf("%s/%d", sum, generation)})
	return c.applyObject(ctx, u, present != nil)
}

// applyObject applies an object. Only what is ours already is applied against other managers.
func (c *Controller) applyObject(ctx context.Context, u *unstructured.Unstructured, ours bool) error {
	options := []client.ApplyOption{fieldOwner}
	if ours {
		options = append(options, client.ForceOwnership)
	}
	return c.shared.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...)
}

// digestOf tells whether two contents are equal.
func digestOf(content map[string]any) (string, error) {
	data, err := json.Marshal(content) // sorts the keys
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	_, _ = h.Write(data)
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

// asksTheSame reports whether a CapacityBuffer has what is to be applied: others may have added to it.
func asksTheSame(present, wanted *unstructured.Unstructured) bool {
	for _, field := range [][]string{{"spec", "replicas"}, {"spec", "podTemplateRef"}} {
		a, _, _ := unstructured.NestedFieldNoCopy(present.Object, field...)
		b, _, _ := unstructured.NestedFieldNoCopy(wanted.Object, field...)
		if !equality.Semantic.DeepEqual(a, b) {
			return false
		}
	}
	for key, value := range wanted.GetLabels() {
		if present.GetLabels()[key] != value {
			return false
		}
	}
	return buy.SameState(present, wanted)
}

// deleteUnplanned deletes what exists and is not planned, and reports whether there was any.
func (c *Controller) deleteUnplanned(ctx context.Context, has *existing) (left bool) {
	remove := func(obj client.Object) {
		left = true
		uid := obj.GetUID()
		if err := c.shared.Client.Delete(ctx, obj, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil &&
			ctx.Err() == nil {
			klog.FromContext(ctx).Error(
				err, "Cannot delete an object that is not wanted any more", "object", klog.KObj(obj),
			)
		}
	}
	for _, objects := range has.buffers {
		for _, obj := range objects {
			remove(obj)
		}
	}
	for _, objects := range has.templates {
		for _, obj := range objects {
			remove(obj)
		}
	}
	return left
}

// patchStatus writes the status of an object if it has changed. After a conflict the next look has the newer object.
func (c *Controller) patchStatus(ctx context.Context, before, after client.Object) {
	if equality.Semantic.DeepEqual(before, after) {
		return
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.shared.Client.Status().Patch(ctx, after, patch); client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot write the status", "object", klog.KObj(before))
	}
}
