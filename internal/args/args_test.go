package args_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/internal/args"
)

type demoArgs struct {
	metav1.TypeMeta `json:",inline"`

	Timeout metav1.Duration `json:"timeout,omitempty"`
	Count   int32           `json:"count,omitempty"`
	Nested  struct {
		Name  string            `json:"name,omitempty"`
		Waits []metav1.Duration `json:"waits,omitempty"`
	} `json:"nested"`
}

func (*demoArgs) DeepCopyObject() runtime.Object { return nil }

func defaults() demoArgs {
	return demoArgs{Timeout: metav1.Duration{Duration: time.Minute}, Count: 3}
}

func TestDecode(t *testing.T) {
	cases := []struct {
		name    string
		obj     runtime.Object
		want    func(*demoArgs)
		wantErr string
	}{
		{name: "nil keeps the defaults"},
		{name: "empty keeps the defaults", obj: &runtime.Unknown{}},
		{name: "JSON", obj: &runtime.Unknown{Raw: []byte(`{"count":7}`), ContentType: runtime.ContentTypeJSON}, want: func(a *demoArgs) {
			a.Count = 7
		}},
		{name: "YAML", obj: &runtime.Unknown{Raw: []byte("timeout: 5s\n"), ContentType: runtime.ContentTypeYAML}, want: func(a *demoArgs) {
			a.Timeout.Duration = 5 * time.Second
		}},
		{name: "a zero that is written overrides the default", obj: &runtime.Unknown{Raw: []byte(`{"count":0}`)}, want: func(a *demoArgs) {
			a.Count = 0
		}},
		{name: "typed", obj: &demoArgs{Count: 9}, want: func(a *demoArgs) { *a = demoArgs{Count: 9} }},
		{
			name: "unknown field", obj: &runtime.Unknown{Raw: []byte(`{"cuont":7}`)},
			wantErr: `plugin Demo: args: unknown field "cuont"`,
		},
		{
			name: "unknown nested field", obj: &runtime.Unknown{Raw: []byte(`{"nested":{"nmae":"x"}}`)},
			wantErr: `plugin Demo: args: unknown field "nested.nmae"`,
		},
		{
			name: "repeated field", obj: &runtime.Unknown{Raw: []byte("count: 1\ncount: 2\n")},
			wantErr: `plugin Demo: args: line 2: key "count" already set in map`,
		},
		{
			name: "wrong type", obj: &runtime.Unknown{Raw: []byte(`{"count":"many"}`)},
			wantErr: "plugin Demo: args: cannot unmarshal string into Go struct field demoArgs.count of type int32",
		},
		{
			name: "bad duration", obj: &runtime.Unknown{Raw: []byte(`{"timeout":"5 parsecs"}`)},
			wantErr: `plugin Demo: args: timeout: Invalid value: "5 parsecs": time: unknown unit " parsecs" in duration "5 parsecs"`,
		},
		{
			name: "a duration without a unit", obj: &runtime.Unknown{Raw: []byte("count: 1\ntimeout: \"60\"\n")},
			wantErr: `plugin Demo: args: timeout: Invalid value: "60": time: missing unit in duration "60"`,
		},
		{
			name: "a number for a duration", obj: &runtime.Unknown{Raw: []byte("timeout: 60\n")},
			wantErr: `plugin Demo: args: cannot unmarshal number into Go struct field demoArgs.timeout of type string`,
		},
		{
			name: "a bad duration in a list", obj: &runtime.Unknown{Raw: []byte(`{"nested":{"waits":["1s","2"]}}`)},
			wantErr: `plugin Demo: args: nested.waits[1]: Invalid value: "2": time: missing unit in duration "2"`,
		},
		{
			name: "not a mapping", obj: &runtime.Unknown{Raw: []byte(`[1]`)},
			wantErr: "plugin Demo: args: cannot unmarshal array into Go value of type args_test.demoArgs",
		},
		{
			name: "protobuf", obj: &runtime.Unknown{Raw: []byte("x"), ContentType: runtime.ContentTypeProtobuf},
			wantErr: `plugin Demo: args: unsupported content type "application/vnd.kubernetes.protobuf", want JSON or YAML`,
		},
		{
			name: "another type", obj: &metav1.Status{},
			wantErr: "plugin Demo: args: want a mapping, got an object of type *v1.Status",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			got := defaults()
			err := args.Decode("Demo", tc.obj, &got)
			if tc.wantErr != "" {
				require.EqualError(t, err, tc.wantErr)
				return
			}
			require.NoError(t, err)
			want := defaults()
			if tc.want != nil {
				tc.want(&want)
			}
			require.Equal(t, want, got)
		})
	}
}

func TestInvalidNamesEveryField(t *testing.T) {
	require.NoError(t, args.Invalid("Demo", nil))
	err := args.Invalid("Demo", field.ErrorList{
		field.Invalid(field.NewPath("timeout"), "-1s", "must not be negative"),
		field.Required(field.NewPath("nested", "name"), ""),
	})
	require.EqualError(
		t, err,
		`plugin Demo: invalid args: timeout: Invalid value: "-1s": must not be negative; nested.name: Required value`,
	)
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"count":1}`, "timeout: 5s", "", "[]", "a: &x [*x]", "\x00", `{"nested":null}`, `{"nested":{"waits":["x"]}}`,
		`timeout: {}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := defaults()
		if err := args.Decode("Demo", &runtime.Unknown{Raw: raw}, &got); err != nil {
			require.NotContains(t, err.Error(), "\n", "an error is one line")
			require.Contains(t, err.Error(), "plugin Demo: ")
		}
	})
}
