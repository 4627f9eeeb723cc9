package main

import (
	_ "embed"
	"fmt"

	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var casesYAML []byte

// caseSizes is the part of a case that the driver needs.
type caseSizes struct {
	Name      string `json:"name"`
	Workloads []struct {
		Name   string             `json:"name"`
		Params map[string]float64 `json:"params"`
	} `json:"workloads"`
}

// measuredPods returns how many pods a workload measures.
func measuredPods(name, workload string) (float64, error) {
	var cases []caseSizes
	if err := yaml.Unmarshal(casesYAML, &cases); err != nil {
		return 0, fmt.Errorf("cases.yaml: %w", err)
	}
	for _, c := range cases {
		for _, w := range c.Workloads {
			if c.Name == name && w.Name == workload {
				return w.Params["measured"], nil
			}
		}
	}
	return 0, fmt.Errorf("cases.yaml: no workload %s of case %s", workload, name)
}
