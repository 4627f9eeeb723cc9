package cluster

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"
)

// The least rate at which the demo's scheduler may call the API server. The
// upstream default of 50 a second would measure the limiter.
const (
	schedulerQPS   = 500
	schedulerBurst = 1000
)

// adaptProfile returns the scheduler configuration with the connection of this
// cluster in place of its own. Everything else stays as it is.
func adaptProfile(profile []byte, kubeconfig string) ([]byte, error) {
	var config map[string]any
	if err := yaml.UnmarshalStrict(profile, &config); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	if config["kind"] != "KubeSchedulerConfiguration" {
		return nil, fmt.Errorf("scheduler configuration: kind is %v, want KubeSchedulerConfiguration", config["kind"])
	}
	connection := map[string]any{}
	if existing, ok := config["clientConnection"]; ok {
		if connection, ok = existing.(map[string]any); !ok {
			return nil, errors.New("scheduler configuration: clientConnection is not an object")
		}
	}
	connection["kubeconfig"] = kubeconfig
	connection["qps"] = atLeast(connection["qps"], schedulerQPS)
	connection["burst"] = atLeast(connection["burst"], schedulerBurst)
	config["clientConnection"] = connection
	return yaml.Marshal(config)
}

func atLeast(value any, least float64) float64 {
	if n, ok := value.(float64); ok {
		return max(n, least)
	}
	return least
}
