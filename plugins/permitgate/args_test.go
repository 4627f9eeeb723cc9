package permitgate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestArgs(t *testing.T) {
	seconds := func(s int) metav1.Duration { return metav1.Duration{Duration: time.Duration(s) * time.Second} }
	defaults := PermitGateArgs{
		ScheduleTimeout: seconds(60), PrepareTimeout: seconds(660), InitialBackoff: seconds(1), MaxBackoff: seconds(30),
		BindRehearsal:        RehearseAuto,
		RecoveryPolicy:       RecoveryKeep,
		RecoveryTimeout:      seconds(300),
		StarvationAfter:      seconds(300),
		GangPreemption:       true,
		ManagePodGroupStatus: true,
	}
	for name, tt := range map[string]struct {
		raw  string
		want func(*PermitGateArgs) // changes the defaults
		err  string
	}{
		"none": {"", func(*PermitGateArgs) {}, ""},
		"some": {`scheduleTimeout: 2m`, func(a *PermitGateArgs) { a.ScheduleTimeout = seconds(120) }, ""},
		"all": {`{"kind":"PermitGateArgs","scheduleTimeout":"15m","prepareTimeout":"20m","bindRehearsal":"Always","recoveryPolicy":"Evict","recoveryTimeout":"1m","starvationAfter":"2m","initialBackoff":"5s","maxBackoff":"5s","managePodGroupStatus":false,"gangPreemption":false}`, func(a *PermitGateArgs) {
			a.ScheduleTimeout, a.PrepareTimeout, a.InitialBackoff, a.MaxBackoff = seconds(900), seconds(1200), seconds(5), seconds(5)
			a.ManagePodGroupStatus, a.GangPreemption, a.BindRehearsal = false, false, RehearseAlways
			a.RecoveryPolicy, a.RecoveryTimeout, a.StarvationAfter = RecoveryEvict, seconds(60), seconds(120)
		}, ""},
		"typo":    {`scheduleTimeOuts: 1s`, nil, `unknown field "scheduleTimeOuts"`},
		"no unit": {`scheduleTimeout: 60`, nil, "plugin PermitGate: args:"},
		"zero":    {`scheduleTimeout: 0s`, nil, `scheduleTimeout: Invalid value: "0s": must be more than 0 and at most 15m0s`},
		"too long": {
			`scheduleTimeout: 16m`,
			nil,
			`scheduleTimeout: Invalid value: "16m0s": must be more than 0 and at most 15m0s`,
		},
		"no such rehearsal": {`bindRehearsal: Sometimes`, nil, `bindRehearsal: Unsupported value: "Sometimes": supported values: "Auto", "Always", "Never"`},
		"no such recovery":  {`recoveryPolicy: Delete`, nil, `recoveryPolicy: Unsupported value: "Delete": supported values: "Keep", "Evict"`},
		"no recovery":       {`recoveryTimeout: -1m`, nil, `recoveryTimeout: Invalid value: "-1m0s": must be more than 0`},
		"never starving":    {`starvationAfter: 0s`, nil, `starvationAfter: Invalid value: "0s": must be more than 0`},
		"no preparation":    {`prepareTimeout: 0s`, nil, `prepareTimeout: Invalid value: "0s": must be more than 0`},
		"negative backoff":  {`initialBackoff: -1s`, nil, `initialBackoff: Invalid value: "-1s": must be more than 0`},
		"backoffs swapped":  {`{initialBackoff: 1m, maxBackoff: 1s}`, nil, `maxBackoff: Invalid value: "1s": must be at least initialBackoff (1m0s)`},
		"several":           {`{scheduleTimeout: -1s, initialBackoff: 0s}`, nil, `"0s": must be more than 0`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decodeArgs(&runtime.Unknown{Raw: []byte(tt.raw)})
			if tt.err != "" {
				require.ErrorContains(t, err, "plugin PermitGate")
				require.ErrorContains(t, err, tt.err)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			want := defaults
			tt.want(&want)
			require.Equal(t, want, got)
		})
	}
	_, err := decodeArgs(nil)
	require.NoError(t, err)
}
