package fakeapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

var (
	pods   = v1.SchemeGroupVersion.WithResource("pods")
	claims = resourcev1.SchemeGroupVersion.WithResource("resourceclaims")
)

// Server is an API server. Make one with New. Its methods may be called from several goroutines.
type Server struct {
	// Client is the clientset of those who are not schedulers: the test itself, and the controllers that it plays.
	Client *fake.Clientset
	// Graceful has a deleted pod terminate until it is deleted from the client's tracker, as its kubelet would do.
	Graceful atomic.Bool
	// Patches counts the patches of pods.
	Patches  atomic.Int64
	versions atomic.Int64
	// EventDelay is how long events of watches take, in nanoseconds. Their order within a watch stays.
	EventDelay atomic.Int64
	// RepeatEvents has watches say twice that an object was changed.
	RepeatEvents atomic.Bool
	// Conflicts has an update of a ResourceClaim refused that is not of its last version.
	Conflicts atomic.Bool

	claims     sync.Mutex // is held while a ResourceClaim is read and written
	mu         sync.Mutex // guards everything below
	binds      []string
	beforeBind func(pod string) error
	afterBind  func(pod string) error
}

// New returns a server without objects.
func New() *Server {
	// The clientset with managed fields makes a map of all kinds with each write, which takes 2 ms and garbage for the
	// collector.
	s := &Server{Client: fake.NewSimpleClientset()}
	s.serve()
	return s
}

// BeforeBind has f called before each bind of a pod, which it may refuse; nil has all pass.
func (s *Server) BeforeBind(f func(pod string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beforeBind = f
}

// AfterBind has f called when a pod has been bound. Its error is what the scheduler hears of the bind.
func (s *Server) AfterBind(f func(pod string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.afterBind = f
}

// Binds returns the names of the pods that have been bound, in order.
func (s *Server) Binds() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.binds)
}

// serve has the fake clientset do what schedulers need of an API server and it does not by itself.
func (s *Server) serve() {
	// The scheduler tells updates from repetitions by versions.
	s.Client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a, ok := action.(clienttesting.CreateAction); ok { // updates are, too
			s.SetVersion(a.GetObject())
			if o, err := meta.Accessor(a.GetObject()); err == nil && o.GetName() == "" && o.GetGenerateName() != "" {
				o.SetName(o.GetGenerateName() + o.GetResourceVersion())
				o.SetUID(types.UID(o.GetName()))
			}
		}
		return false, nil, nil
	})
	// What a watch begins with, the clientset does not copy, and informers change it.
	s.Client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		a := action.(clienttesting.WatchActionImpl)
		w, err := s.Client.Tracker().Watch(a.GetResource(), a.GetNamespace(), a.ListOptions)
		if err != nil {
			return true, nil, err
		}
		return true, s.copied(w, a.GetWatchRestrictions().Fields), nil
	})
	// Lists, too, pass by the labels alone.
	s.Client.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.ListActionImpl)
		list, err := s.Client.Tracker().List(a.GetResource(), a.GetKind(), a.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		pods := list.(*v1.PodList)
		pods.Items = slices.DeleteFunc(pods.Items, func(pod v1.Pod) bool { return !selects(a.GetListRestrictions().Fields, &pod) })
		return true, pods, nil
	})
	s.Client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		binding, isBinding := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		if !isBinding {
			return false, nil, nil
		}
		return true, binding, s.bindPod(binding)
	})
	s.Client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.DeleteActionImpl)
		if len(a.DeleteOptions.DryRun) > 0 {
			return true, nil, nil
		}
		if !s.Graceful.Load() {
			return false, nil, nil
		}
		return true, nil, s.EditPod(a.Namespace, a.Name, func(pod *v1.Pod) {
			if pod.DeletionTimestamp == nil {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
		})
	})
	react := clienttesting.ObjectReaction(s.Client.Tracker())
	s.Client.PrependReactor("update", "resourceclaims", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.UpdateActionImpl)
		return true, a.Object, s.updateClaim(a.Object.(*resourcev1.ResourceClaim))
	})
	s.Client.PrependReactor("patch", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		resource := action.GetResource().Resource
		if resource != "pods" && resource != "resourceclaims" {
			return false, nil, nil
		}
		patch := action.(clienttesting.PatchActionImpl)
		var fields map[string]any
		if err := json.Unmarshal(patch.Patch, &fields); err != nil {
			return true, nil, err
		}
		metadata, _ := fields["metadata"].(map[string]any)
		if metadata == nil {
			metadata = map[string]any{}
			fields["metadata"] = metadata
		}
		if uid, ok := metadata["uid"].(string); ok {
			if err := s.requireUID(patch, types.UID(uid)); err != nil {
				return true, nil, err
			}
		}
		metadata["resourceVersion"] = strconv.FormatInt(s.versions.Add(1), 10)
		var err error
		if patch.Patch, err = json.Marshal(fields); err != nil {
			return true, nil, err
		}
		if resource == "pods" {
			s.Patches.Add(1)
		}
		s.claims.Lock() // so that no update of a claim comes in between
		defer s.claims.Unlock()
		return react(patch)
	})
}

// requireUID refuses a patch that is for another object of the name than the one that there is.
func (s *Server) requireUID(patch clienttesting.PatchActionImpl, uid types.UID) error {
	o, err := s.Client.Tracker().Get(patch.GetResource(), patch.Namespace, patch.Name)
	if err != nil {
		return err
	}
	accessor, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	if accessor.GetUID() != uid {
		return apierrors.NewConflict(patch.GetResource().GroupResource(), patch.Name, fmt.Errorf("the UID is %s", accessor.GetUID()))
	}
	return nil
}

// SetVersion gives an object the next version.
func (s *Server) SetVersion(o runtime.Object) {
	if accessor, err := meta.Accessor(o); err == nil {
		accessor.SetResourceVersion(strconv.FormatInt(s.versions.Add(1), 10))
	}
}

// updateClaim stores a ResourceClaim, with Conflicts unless it has been changed since it was read.
func (s *Server) updateClaim(claim *resourcev1.ResourceClaim) error {
	s.claims.Lock()
	defer s.claims.Unlock()
	o, err := s.Client.Tracker().Get(claims, claim.Namespace, claim.Name)
	if err != nil {
		return err
	}
	if current := o.(*resourcev1.ResourceClaim); s.Conflicts.Load() && (current.UID != claim.UID || current.ResourceVersion != claim.ResourceVersion) {
		return apierrors.NewConflict(claims.GroupResource(), claim.Name, errors.New("the object has been modified"))
	}
	s.SetVersion(claim)
	return s.Client.Tracker().Update(claims, claim, claim.Namespace)
}

func (s *Server) bindPod(binding *v1.Binding) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beforeBind != nil {
		if err := s.beforeBind(binding.Name); err != nil {
			return err
		}
	}
	err := s.EditPod(binding.Namespace, binding.Name, func(pod *v1.Pod) {
		pod.Spec.NodeName = binding.Target.Name
		podutil.UpdatePodCondition(&pod.Status, &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	}, func(pod *v1.Pod) error { return mayBind(pod, binding) })
	if err != nil {
		return err
	}
	s.binds = append(s.binds, binding.Name)
	if s.afterBind != nil {
		return s.afterBind(binding.Name)
	}
	return nil
}

// mayBind refuses the bind of a pod that is another one, has a node or terminates.
func mayBind(pod *v1.Pod, binding *v1.Binding) error {
	if pod.UID != binding.UID || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return apierrors.NewConflict(v1.Resource("pods/binding"), pod.Name, errors.New("it has a node, terminates or is another pod"))
	}
	return nil
}

// EditPod changes a pod unless one of the checks fails.
func (s *Server) EditPod(namespace, name string, edit func(*v1.Pod), checks ...func(*v1.Pod) error) error {
	o, err := s.Client.Tracker().Get(pods, namespace, name)
	if err != nil {
		return err
	}
	pod := o.(*v1.Pod).DeepCopy()
	for _, check := range checks {
		if err := check(pod); err != nil {
			return err
		}
	}
	edit(pod)
	s.SetVersion(pod)
	return s.Client.Tracker().Update(pods, pod, namespace)
}
