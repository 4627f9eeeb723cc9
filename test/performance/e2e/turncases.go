package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// turnNodePrefix begins the names of the nodes that part the turns of a case from one another.
const turnNodePrefix = "turn-"

// podsPerTurn is how many pods a turn of a workload measures; of those that are not here, as many as the workload does.
// They are seconds of work: less than it takes a shared machine to become faster or slower.
var podsPerTurn = map[string]float64{large: 1000, gangs3: 900, gangs20: 1000, gangs5k: 2500, racks4: 1000, racks1k: 1000}

// splitIntoTurns makes a case that measures its pods several times over on the same cluster, each time in a new
// namespace. The first time is for the scheduler and the API server to warm up. Before each of the others, and after the
// last one, a node is created, which takes no pods: scheduler_perf then calls the hook that waits for its turn.
func splitIntoTurns(c map[string]any, turns int) error {
	template, ok := c["workloadTemplate"].([]any)
	if !ok {
		return errors.New("no workloadTemplate")
	}
	measured := slices.IndexFunc(template, func(op any) bool {
		o, _ := op.(map[string]any)
		return o["namespace"] != nil || o["collectMetrics"] != nil
	})
	if measured < 0 || !collectsItself(template[measured:]) {
		return errors.New("no step creates pods with collectMetrics at the end of the case")
	}
	all := slices.Clone(template)
	for turn := 1; turn <= turns; turn++ {
		all = append(all, turnNode())
		for _, op := range template[measured:] {
			o := maps.Clone(op.(map[string]any))
			delete(o, "collectMetrics")
			if namespace, ok := o["namespace"].(string); ok {
				o["namespace"] = fmt.Sprintf("%s-%d", namespace, turn)
			}
			all = append(all, o)
		}
	}
	c["workloadTemplate"] = append(all, turnNode())

	workloads, _ := c["workloads"].([]any)
	for _, w := range workloads {
		workload, _ := w.(map[string]any)
		name, _ := workload["name"].(string)
		params, _ := workload["params"].(map[string]any)
		pods, ok := podsPerTurn[name]
		if !ok {
			continue
		}
		params = maps.Clone(params)
		params["measured"] = pods
		if members, ok := params["members"].(float64); ok && params["gangs"] != nil {
			params["gangs"] = pods / members
		}
		workload["params"] = params
	}
	return nil
}

// collectsItself tells whether the last of the steps creates the measured pods and waits for them.
func collectsItself(ops []any) bool {
	last, _ := ops[len(ops)-1].(map[string]any)
	return last["opcode"] == "createPods" && last["collectMetrics"] != nil
}

func turnNode() map[string]any {
	return map[string]any{"opcode": "createNodes", "count": 1, "nodeTemplatePath": "templates/node-turn.yaml"}
}

// podsOfTurn returns how many pods a turn of a workload measures.
func podsOfTurn(name, workload string) (float64, error) {
	if err := takesTurns(name); err != nil {
		return 0, err
	}
	all, err := measuredPods(name, workload)
	if pods, ok := podsPerTurn[workload]; ok && err == nil {
		return pods, nil
	}
	return all, err
}

// takesTurns returns an error for a case that cannot be measured in turns.
func takesTurns(name string) error {
	if !slices.Contains(turnCases(), name) {
		return fmt.Errorf("case %s cannot be measured in turns: its pods have to be in the namespace of those before", name)
	}
	return nil
}

// turnCases returns the names of the cases that can be measured in turns.
func turnCases() []string {
	var cases []map[string]any
	if err := yaml.Unmarshal(casesYAML, &cases); err != nil {
		panic("cases.yaml: " + err.Error()) // it is part of the program
	}
	var names []string
	for _, c := range cases {
		if name, _ := c["name"].(string); splitIntoTurns(c, 1) == nil {
			names = append(names, name)
		}
	}
	return names
}

// namespaceIsOf tells whether a namespace is the one of a case, or that of one of its turns.
func namespaceIsOf(namespace, ofCase string) bool {
	return namespace == ofCase || strings.HasPrefix(namespace, ofCase+"-")
}
