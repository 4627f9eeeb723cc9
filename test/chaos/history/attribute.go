package history

import "time"

// lateness is by how much a change may have been seen after its request was answered, or before.
const lateness = 5 * time.Second

// Attribute sets the writers of the changes that schedulers have asked for.
func (r *Record) Attribute() {
	byRevision := map[int64]*Change{}
	byPod := map[string][]*Change{}
	bound := map[string]*Change{} // the first change that shows a pod on its node
	for i := range r.Changes {
		c := &r.Changes[i]
		byRevision[c.Revision] = c
		if c.Pod == nil {
			continue
		}
		key := c.Pod.Namespace + "/" + c.Pod.Name
		byPod[key] = append(byPod[key], c)
		if uid := string(c.Pod.UID); c.Pod.Spec.NodeName != "" && bound[uid] == nil {
			bound[uid] = c
		}
	}
	for i := range r.Requests {
		q := &r.Requests[i]
		switch {
		case !q.Accepted():
		case q.Binds():
			q.bound(bound)
		case q.Resource == "pods" && (q.Verb == "delete" || q.Subresource == "eviction"):
			if c := deletion(byPod[q.Namespace+"/"+q.Name], q); c != nil {
				c.Writer = q.Writer
			}
		default:
			// A write that changes nothing answers with the revision of an earlier one.
			if c := byRevision[q.Revision]; c != nil && c.Writer == "" && !c.Time.Before(q.Received.Add(-lateness)) {
				c.Writer = q.Writer
			}
		}
	}
	// A bind that failed inside of the API server may have been done, if no other one was.
	for i := range r.Requests {
		if q := &r.Requests[i]; q.Binds() && !q.DryRun && q.Code >= 500 {
			q.bound(bound)
		}
	}
}

// bound makes a bind's writer that of the change that shows it.
func (r *Request) bound(changes map[string]*Change) {
	c := changes[string(r.UID)]
	if c != nil && c.Writer == "" && c.Pod.Spec.NodeName == r.Node && !c.Time.Before(r.Received.Add(-lateness)) {
		c.Writer = r.Writer
	}
}

// deletion returns the change with which a pod's deletion began that a request asked for.
func deletion(changes []*Change, q *Request) *Change {
	ending := map[string]bool{}
	for _, c := range changes {
		uid := string(c.Pod.UID)
		if !c.Deleted && c.Pod.DeletionTimestamp == nil || ending[uid] {
			continue
		}
		ending[uid] = true
		if c.Writer == "" && c.Time.After(q.Received.Add(-lateness)) && c.Time.Before(q.Answered.Add(lateness)) {
			return c
		}
	}
	return nil
}
