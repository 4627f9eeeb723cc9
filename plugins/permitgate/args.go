package permitgate

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/internal/args"
	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/rehearse"
)

// Name is the name of the plugin in the registry and in KubeSchedulerConfiguration.
const Name = "PermitGate"

// PermitGateArgs configures the plugin. All profiles of one scheduler must have equal args, since
// they share the gangs.
type PermitGateArgs struct {
	metav1.TypeMeta `json:",inline"`

	// ScheduleTimeout is how long the first waiting member of a gang waits in Permit for the rest, if
	// the PodGroup has no spec.scheduleTimeoutSeconds. More than 0, at most 15m; 60s by default.
	ScheduleTimeout metav1.Duration `json:"scheduleTimeout,omitempty"`
	// PrepareTimeout is how long released members wait at the barrier until the volumes and devices of all are
	// ready; after that the gang is rolled back. It must be longer than the timeouts of the profile's other
	// PreBind plugins: bindTimeoutSeconds of VolumeBinding and
	// bindingTimeout of DynamicResources, 10m each by default. More than 0; 11m by default.
	PrepareTimeout metav1.Duration `json:"prepareTimeout,omitempty"`
	// BindRehearsal says whether binds are rehearsed while members wait: sent to the API server with dryRun, so that
	// the whole gang is sent back if admission would refuse them. Auto, the default: the bind of one member of each pod
	// template. Never: none.
	BindRehearsal rehearse.Mode `json:"bindRehearsal,omitempty"`
	// InitialBackoff is how long a gang is kept out of the queue after its first refusal or rollback; each
	// further one doubles the time, up to MaxBackoff. A jitter shortens it by up to half, so that gangs that
	// blocked each other do not meet again. More than 0; 1s by default.
	InitialBackoff metav1.Duration `json:"initialBackoff,omitempty"`
	// MaxBackoff limits the backoff, but for that of a packed gang which makes up for several domains. At least
	// InitialBackoff; 30s by default.
	MaxBackoff metav1.Duration `json:"maxBackoff,omitempty"`
	// RecoveryTimeout is how long a gang may stay bound in part before it is reported. More than 0; 5m by default.
	RecoveryTimeout metav1.Duration `json:"recoveryTimeout,omitempty"`
	// StarvationAfter is how long a gang whose quorum exists is refused for lack of room before it keeps nodes from
	// other pods, if it would fit there beside the pods of higher priority and those of DaemonSets. One gang at a time
	// does so, as long as more of its members fit there within the same time (at least a minute) than before. More than
	// 0; 5m by default.
	StarvationAfter metav1.Duration `json:"starvationAfter,omitempty"`
	// PreemptionDelay is how long a gang waits, from the time that its quorum exists, before it preempts, so that an
	// autoscaler can bring room first. At least 0, the default.
	PreemptionDelay metav1.Duration `json:"preemptionDelay,omitempty"`
	// GangPreemption lets a gang without room preempt pods of a lower priority if it fits without them; true by
	// default. PodDisruptionBudgets are respected if there is a choice, and preemptionPolicy Never always.
	GangPreemption bool `json:"gangPreemption,omitempty"`
	// NativeGroups says what becomes of the gangs of scheduling.k8s.io, which kube-scheduler schedules if its feature
	// gate GenericWorkload is on. Guard, the default: they bind whole or not at all, as other gangs do. Ignore: they
	// are left to kube-scheduler.
	NativeGroups native.Mode `json:"nativeGroups,omitempty"`
	// ManagePodGroupStatus has the leader keep the status of PodGroups current; true by default. Turn it
	// off if Coscheduling's controller still does that.
	ManagePodGroupStatus bool `json:"managePodGroupStatus,omitempty"`
}

// DeepCopyObject lets a program that embeds the scheduler pass the args as an object.
func (a *PermitGateArgs) DeepCopyObject() runtime.Object {
	if a == nil {
		return nil
	}
	c := *a
	return &c
}

// defaultArgs returns the args of a profile that gives none.
func defaultArgs() PermitGateArgs {
	return PermitGateArgs{
		ScheduleTimeout: metav1.Duration{Duration: time.Minute},
		PrepareTimeout:  metav1.Duration{Duration: 11 * time.Minute},
		InitialBackoff:  metav1.Duration{Duration: time.Second},
		MaxBackoff:      metav1.Duration{Duration: 30 * time.Second},
		StarvationAfter: metav1.Duration{Duration: 5 * time.Minute},

		BindRehearsal:        rehearse.Auto,
		RecoveryTimeout:      metav1.Duration{Duration: 5 * time.Minute},
		GangPreemption:       true,
		NativeGroups:         native.Guard,
		ManagePodGroupStatus: true,
	}
}

// decodeArgs reads, defaults and validates the args of a profile. The error is one line that names the
// fields.
func decodeArgs(obj runtime.Object) (PermitGateArgs, error) {
	a := defaultArgs()
	if err := args.Decode(Name, obj, &a); err != nil {
		return a, err
	}
	// Args with and without a kind count as equal.
	a.TypeMeta = metav1.TypeMeta{}
	return a, args.Invalid(Name, a.validate())
}

func (a *PermitGateArgs) validate() (errs field.ErrorList) {
	invalid := func(name string, value any, why string) {
		errs = append(errs, field.Invalid(field.NewPath(name), value, why))
	}
	for _, positive := range []struct {
		name  string
		value metav1.Duration
	}{
		{"prepareTimeout", a.PrepareTimeout}, {"recoveryTimeout", a.RecoveryTimeout}, {"initialBackoff", a.InitialBackoff}, {"starvationAfter", a.StarvationAfter},
	} {
		if positive.value.Duration <= 0 {
			invalid(positive.name, positive.value.Duration.String(), "must be more than 0")
		}
	}
	if d := a.ScheduleTimeout.Duration; d <= 0 || d > podgroup.MaxTimeout {
		invalid("scheduleTimeout", d.String(), "must be more than 0 and at most "+podgroup.MaxTimeout.String())
	}
	if d := a.PreemptionDelay.Duration; d < 0 {
		invalid("preemptionDelay", d.String(), "must be at least 0")
	}
	if d := a.MaxBackoff.Duration; d < a.InitialBackoff.Duration {
		invalid("maxBackoff", d.String(), "must be at least initialBackoff ("+a.InitialBackoff.Duration.String()+")")
	}
	if modes := []rehearse.Mode{rehearse.Auto, rehearse.Never}; !slices.Contains(modes, a.BindRehearsal) {
		errs = append(errs, field.NotSupported(field.NewPath("bindRehearsal"), a.BindRehearsal, modes))
	}
	if modes := []native.Mode{native.Guard, native.Ignore}; !slices.Contains(modes, a.NativeGroups) {
		errs = append(errs, field.NotSupported(field.NewPath("nativeGroups"), a.NativeGroups, modes))
	}
	return errs
}
