// Package audit has a control plane record the requests that it serves, so that a test can judge afterwards who has
// written what: the API server's own account, which no watch has thinned out.
package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Log is an audit log. Make one with New.
type Log struct{ path string }

// New returns a log in dir, and the flags with which kube-apiserver writes it by the rules. A request is recorded once,
// when it has been answered; what no rule names is not recorded.
func New(dir string, rules ...auditv1.PolicyRule) (*Log, map[string]string, error) {
	policy := &auditv1.Policy{
		OmitStages:        []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseStarted},
		OmitManagedFields: true,
		Rules:             append(rules, auditv1.PolicyRule{Level: auditv1.LevelNone}),
	}
	policy.APIVersion, policy.Kind = auditv1.SchemeGroupVersion.String(), "Policy"
	content, err := json.Marshal(policy)
	if err != nil {
		return nil, nil, err
	}
	file, log := filepath.Join(dir, "audit-policy.json"), filepath.Join(dir, "audit.log")
	flags := map[string]string{"audit-policy-file": file, "audit-log-path": log, "audit-log-mode": "blocking"}
	return &Log{path: log}, flags, os.WriteFile(file, content, 0o600)
}

// Events returns what has been recorded so far, in the order in which requests were answered. A last line that is not
// complete yet is left out.
func (l *Log) Events() ([]auditv1.Event, error) {
	content, err := os.ReadFile(l.path)
	if err != nil {
		return nil, err
	}
	var events []auditv1.Event
	for line := range bytes.Lines(content) {
		if line[len(line)-1] != '\n' {
			break
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		events = append(events, event)
	}
	return events, nil
}

// Accepted reports whether the API server did what was asked.
func Accepted(e *auditv1.Event) bool {
	return e.ResponseStatus != nil && e.ResponseStatus.Code >= 200 && e.ResponseStatus.Code < 300
}

// Program is the name of the program that asked, by which replicas can be told apart: the first word of its user agent.
func Program(e *auditv1.Event) string {
	name, _, _ := strings.Cut(e.UserAgent, "/")
	return name
}
