package fakeapi

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
)

// Answers is what the server says to a scheduler. The zero value accepts everything.
type Answers struct {
	// Bind is asked before a bind that is no rehearsal reaches the server. It may take its time.
	Bind func(*v1.Binding) error
	// DryRunBind is asked about binds with dryRun first.
	DryRunBind func(*v1.Binding) error
	// Delete is asked before a pod is deleted.
	Delete func(pod string) error
	// Write is asked before each bind, deletion, patch and update of a status of a pod, and before each patch and
	// update of a ResourceClaim.
	Write func() error
	// Jobs can be listed when it is closed; nil for at once.
	Jobs <-chan struct{}
}

// SchedulerClient returns the client of a scheduler.
func (s *Server) SchedulerClient(answers Answers) kubernetes.Interface {
	return schedulerClient{s.Client, answers}
}

// schedulerClient is the scheduler's client of the API server. It serves what the fake clientset does not know, and
// what would have all other requests wait there.
type schedulerClient struct {
	*fake.Clientset
	answers Answers
}

func (c schedulerClient) CoreV1() coreclient.CoreV1Interface {
	return schedulerCore{c.Clientset.CoreV1(), c.answers}
}

type schedulerCore struct {
	coreclient.CoreV1Interface
	answers Answers
}

func (c schedulerCore) Pods(namespace string) coreclient.PodInterface {
	return schedulerPods{c.CoreV1Interface.Pods(namespace), c.answers}
}

type schedulerPods struct {
	coreclient.PodInterface
	answers Answers
}

func (a *Answers) mayWrite() error {
	if a.Write == nil {
		return nil
	}
	return a.Write()
}

func (p schedulerPods) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string,
) (*v1.Pod, error) {
	if err := p.answers.mayWrite(); err != nil {
		return nil, err
	}
	return p.PodInterface.Patch(ctx, name, kind, data, opts, subresources...)
}

func (p schedulerPods) UpdateStatus(ctx context.Context, pod *v1.Pod, opts metav1.UpdateOptions) (*v1.Pod, error) {
	if err := p.answers.mayWrite(); err != nil {
		return nil, err
	}
	return p.PodInterface.UpdateStatus(ctx, pod, opts)
}

func (p schedulerPods) Bind(ctx context.Context, binding *v1.Binding, opts metav1.CreateOptions) error {
	if err := p.answers.mayWrite(); err != nil {
		return err
	}
	if slices.Contains(opts.DryRun, metav1.DryRunAll) {
		if p.answers.DryRunBind != nil {
			if err := p.answers.DryRunBind(binding); err != nil {
				return err
			}
		}
		pod, err := p.PodInterface.Get(ctx, binding.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return mayBind(pod, binding)
	}
	if p.answers.Bind != nil {
		if err := p.answers.Bind(binding); err != nil {
			return err
		}
	}
	return p.PodInterface.Bind(ctx, binding, opts)
}

func (p schedulerPods) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	if err := p.answers.mayWrite(); err != nil {
		return err
	}
	if p.answers.Delete != nil {
		if err := p.answers.Delete(name); err != nil {
			return err
		}
	}
	return p.PodInterface.Delete(ctx, name, opts)
}

func (c schedulerClient) ResourceV1() resourceclient.ResourceV1Interface {
	return schedulerResources{c.Clientset.ResourceV1(), c.answers}
}

type schedulerResources struct {
	resourceclient.ResourceV1Interface
	answers Answers
}

func (r schedulerResources) ResourceClaims(namespace string) resourceclient.ResourceClaimInterface {
	return schedulerClaims{r.ResourceV1Interface.ResourceClaims(namespace), r.answers}
}

type schedulerClaims struct {
	resourceclient.ResourceClaimInterface
	answers Answers
}

func (c schedulerClaims) Update(ctx context.Context, claim *resourcev1.ResourceClaim, opts metav1.UpdateOptions) (*resourcev1.ResourceClaim, error) {
	if err := c.answers.mayWrite(); err != nil {
		return nil, err
	}
	return c.ResourceClaimInterface.Update(ctx, claim, opts)
}

func (c schedulerClaims) UpdateStatus(ctx context.Context, claim *resourcev1.ResourceClaim, opts metav1.UpdateOptions) (*resourcev1.ResourceClaim, error) {
	if err := c.answers.mayWrite(); err != nil {
		return nil, err
	}
	return c.ResourceClaimInterface.UpdateStatus(ctx, claim, opts)
}

func (c schedulerClaims) Patch(
	ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string,
) (*resourcev1.ResourceClaim, error) {
	if err := c.answers.mayWrite(); err != nil {
		return nil, err
	}
	return c.ResourceClaimInterface.Patch(ctx, name, kind, data, opts, subresources...)
}

func (c schedulerClient) BatchV1() batchclient.BatchV1Interface {
	return schedulerBatch{c.Clientset.BatchV1(), c.answers.Jobs}
}

type schedulerBatch struct {
	batchclient.BatchV1Interface
	jobs <-chan struct{}
}

func (b schedulerBatch) Jobs(namespace string) batchclient.JobInterface {
	return schedulerJobs{b.BatchV1Interface.Jobs(namespace), b.jobs}
}

type schedulerJobs struct {
	batchclient.JobInterface
	until <-chan struct{}
}

func (l schedulerJobs) List(ctx context.Context, options metav1.ListOptions) (*batchv1.JobList, error) {
	if l.until != nil {
		select {
		case <-l.until:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return l.JobInterface.List(ctx, options)
}
