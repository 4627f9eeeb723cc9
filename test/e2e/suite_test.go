package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	_ "k8s.io/kubernetes/test/e2e/feature" // as in upstream's e2e.test, and the next two
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/e2e/scheduling" // the specs
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// suiteEnv is the variable of the environment with which the test binary is upstream's suite, with the flags of
// e2e.test.
const suiteEnv = "ZONEWISE_E2E_SUITE"

func TestMain(m *testing.M) {
	if os.Getenv(suiteEnv) != "" {
		os.Exit(runSuite())
	}
	ctrllog.SetLogger(logr.Discard()) // envtest's
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil { // the clusters wait, most of the time
		panic(err)
	}
	os.Exit(m.Run())
}

// runSuite runs the specs as upstream's test/e2e does, whose package would bring those of all groups.
func runSuite() (code int) {
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError)
	config.CopyFlags(config.Flags, flags)
	framework.RegisterCommonFlags(flags)
	framework.RegisterClusterFlags(flags)
	flag.VisitAll(func(f *flag.Flag) { // Ginkgo's; --kubeconfig is controller-runtime's, too
		if flags.Lookup(f.Name) == nil {
			flags.Var(f.Value, f.Name, f.Usage)
		}
	})
	_ = flags.Parse(os.Args[1:]) // an error ends the process
	framework.TestContext.IPFamily = "ipv4"
	framework.AfterReadingAllFlags(&framework.TestContext)
	ginkgo.BeforeEach(waitAlone) // after the preview of all specs, which would lose it
	gomega.RegisterFailHandler(framework.Fail)
	ginkgo.RunSpecs((*exitCode)(&code), "sig-scheduling")
	return code
}

// waitAlone waits until the pods of the spec before have left their nodes. Upstream's own wait,
// CheckTestingNSDeletedExcept, is for namespaces of a prefix that they do not have any more.
func waitAlone(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err)
	err = wait.PollUntilContextTimeout(ctx, time.Second, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "e2e-framework"})
		return err == nil && len(namespaces.Items) == 0, err
	})
	framework.ExpectNoError(err, "the namespaces of the spec before are still there")
}

// exitCode is that of the suite's process.
type exitCode int

// Fail is called when a spec has failed.
func (c *exitCode) Fail() { *c = 1 }

// outcome is what became of a spec.
type outcome struct {
	state types.SpecState
	// why is the beginning of a failure's message, or of the reason for which the spec was skipped.
	why string
}

func (o outcome) passed() bool { return o.state == types.SpecStatePassed }

// runSpecs runs the specs that match -focus and filter, an expression of Ginkgo's over labels, and returns their
// outcomes by name.
func (c *cluster) runSpecs(filter string) map[string]outcome {
	c.t.Helper()
	const report = "report.json"
	log := c.create("specs.log")
	cmd := exec.CommandContext(c.t.Context(), os.Args[0],
		"--kubeconfig="+c.plane.Admin, "--kubectl-path="+c.plane.Program("kubectl"), "--provider=skeleton",
		fmt.Sprintf("--num-nodes=%d", nodes), "--dump-logs-on-failure=false", // no kubelet has logs of pods
		"--ginkgo.label-filter="+filter, "--ginkgo.focus="+*focus, "--ginkgo.seed=1", "--ginkgo.timeout=40m",
		"--ginkgo.no-color", "--ginkgo.v", "--ginkgo.json-report="+report)
	cmd.Env = append(os.Environ(), suiteEnv+"=1")
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	failed := cmd.Run() // when a spec has failed, too
	data, err := os.ReadFile(filepath.Join(c.dir, report))
	require.NoError(c.t, err, "the suite has ended without a report: %v\n%s", failed, tail(c.t, log.Name()))
	var reports []types.Report
	require.NoError(c.t, json.Unmarshal(data, &reports))
	outcomes := map[string]outcome{}
	for _, r := range reports {
		require.Empty(c.t, r.SpecialSuiteFailureReasons)
		for _, spec := range r.SpecReports {
			if spec.State == types.SpecStateSkipped && spec.Failure.Message == "" {
				continue // it does not match
			}
			why := spec.Failure.Message
			outcomes[strings.TrimSpace(spec.FullText())] = outcome{state: spec.State, why: why[:min(len(why), 1000)]}
		}
	}
	require.NotEmpty(c.t, outcomes)
	return outcomes
}
