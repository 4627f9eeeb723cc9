package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

//go:embed cases.yaml
var casesYAML []byte

// turnNodePrefix begins the names of the nodes that part the turns of a case from one another.
const turnNodePrefix = "turn-"

// podsPerTurn is how many pods a turn of a workload measures; of those that are not here, as many as cases.yaml says.
// They are seconds of work: less than it takes a shared machine to become faster or slower.
var podsPerTurn = map[string]float64{
	"5000Nodes": 1000, "1000Nodes_600GangsOf3": 900, "1000Nodes_100GangsOf20": 1000, "5000Nodes_20GangsOf500": 2500,
	"5000Nodes_750GangsOf4": 1000, "5000Nodes_3GangsOf1000": 1000,
}

// casesInTurns returns cases.yaml with a scheduler configuration in every case, the default one where the path is
// empty. Every case measures its pods several times over on the same cluster. The first time is for the scheduler and
// the API server to warm up. Before each of the others, and after the last one, a node is created, which takes no pods:
// scheduler_perf then calls the hook that waits for its turn.
func casesInTurns(config string, turns int) ([]byte, error) {
	var cases []map[string]any
	if err := yaml.UnmarshalStrict(casesYAML, &cases); err != nil {
		return nil, fmt.Errorf("cases.yaml: %w", err)
	}
	for _, c := range cases {
		if config != "" {
			c["schedulerConfigPath"] = config
		}
		c["workloadTemplate"] = stepsInTurns(c["workloadTemplate"].([]any), turns)
		for _, w := range c["workloads"].([]any) {
			workload := w.(map[string]any)
			if pods, ok := podsPerTurn[workload["name"].(string)]; ok {
				workload["params"] = paramsOfTurn(workload["params"].(map[string]any), pods)
			}
		}
	}
	return yaml.Marshal(cases)
}

// stepsInTurns returns the steps of a case with those that are measured once more for each turn: the last one, and
// those right before it that create other objects in its namespace. It is a new namespace in each turn, unless there
// are other pods in it.
func stepsInTurns(steps []any, turns int) []any {
	step := func(i int) map[string]any { return steps[i].(map[string]any) }
	first := len(steps) - 1
	namespace, _ := step(first)["namespace"].(string)
	for namespace != "" && step(first - 1)["namespace"] == namespace && step(first - 1)["opcode"] != "createPods" {
		first--
	}
	beside := slices.ContainsFunc(steps[:first], func(s any) bool { return namespace != "" && s.(map[string]any)["namespace"] == namespace })
	part := map[string]any{"opcode": "createNodes", "count": 1, "nodeTemplatePath": "templates/node-turn.yaml"}
	all := slices.Clone(steps)
	for turn := 1; turn <= turns; turn++ {
		all = append(all, part)
		for i := first; i < len(steps); i++ {
			repeated := maps.Clone(step(i))
			delete(repeated, "collectMetrics")
			if namespace != "" && !beside {
				repeated["namespace"] = fmt.Sprintf("%s-%d", namespace, turn)
			}
			all = append(all, repeated)
		}
	}
	return append(all, part)
}

func paramsOfTurn(params map[string]any, pods float64) map[string]any {
	params = maps.Clone(params)
	params["measured"] = pods
	if members, ok := params["members"].(float64); ok && params["gangs"] != nil {
		params["gangs"] = pods / members
	}
	return params
}
