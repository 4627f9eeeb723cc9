package survival

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/version"

	"zonewise.dev/survival"
)

// schedulerHash is a digest of what decides an answer beside the cluster: another scheduler, or losses that are
// replayed otherwise, may come to another one.
func schedulerHash(options *survival.Options) string {
	h := fnv.New64a()
	config, _ := json.Marshal(options.Sim.Config) // plain data
	_, _ = h.Write(config)
	gates, _ := utilfeature.DefaultMutableFeatureGate.(fmt.Stringer) // those that are set, sorted
	_, _ = fmt.Fprint(h, "\n", gates, options.Sim.CallExtenders, options.Sim.Controllers, options.Replays, version.Get().GitVersion)
	return strconv.FormatUint(h.Sum64(), 16)
}
