package manifests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// permission is a verb on a resource. Names and namespaces are left out.
type permission struct {
	verb     string
	group    string
	resource string // with its subresource: pods/status
}

func (p permission) String() string {
	if p.group == "" {
		return p.verb + " " + p.resource
	}
	resource, subresource, ok := strings.Cut(p.resource, "/")
	if ok {
		subresource = "/" + subresource
	}
	return p.verb + " " + resource + "." + p.group + subresource
}

// reads are granted together, since each shows as much as the others. Which of them an informer sends
// depends on what the server offers.
var reads = []string{"get", "list", "watch"}

// kind returns the permission with one name for all reads.
func (p permission) kind() permission {
	if slices.Contains(reads, p.verb) {
		p.verb = "read"
	}
	return p
}

// requests returns what the API server's audit log says of a user: what was asked for, and what of it
// the authorizer refused.
func (c *cluster) requests(t *testing.T, user string) (asked, refused map[permission]bool) {
	t.Helper()
	asked, refused = map[permission]bool{}, map[permission]bool{}
	c.audited(t, user, func(p permission, event *auditv1.Event) {
		asked[p.kind()] = true
		if event.Annotations["authorization.k8s.io/decision"] != "allow" {
			refused[p] = true
		}
	})
	return asked, refused
}

// audited calls see for each request of a user that the audit log has.
func (c *cluster) audited(t *testing.T, user string, see func(permission, *auditv1.Event)) {
	t.Helper()
	f, err := os.Open(c.auditLog)
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(user)) {
			continue // to decode all would take the time of the test
		}
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue // the line that is being written
		}
		if event.User.Username != user || event.ObjectRef == nil {
			continue
		}
		p := permission{verb: event.Verb, group: event.ObjectRef.APIGroup, resource: event.ObjectRef.Resource}
		if event.ObjectRef.Subresource != "" {
			p.resource += "/" + event.ObjectRef.Subresource
		}
		see(p, &event)
	}
	require.NoError(t, lines.Err())
}

// granted returns what the rules allow.
func granted(rules []rbacv1.PolicyRule) map[permission]bool {
	out := map[permission]bool{}
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					out[permission{verb: verb, group: group, resource: resource}.kind()] = true
				}
			}
		}
	}
	return out
}
