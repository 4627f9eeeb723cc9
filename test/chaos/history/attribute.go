package history

import "time"

// lateness is by how much a change may have been seen after its request was answered. It is never seen before the
// request was received.
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
		case q.Deletes():
			q.deleted(byPod)
		default:
			// A write that changes nothing answers with the revision of an earlier one.
			if c := byRevision[q.Revision]; c != nil && c.Writer == "" && !c.Time.Before(q.Received) && !c.ends() {
				c.attribute(q)
			}
		}
	}
	// What failed inside of the API server may have been done, if no other request did it: a killed scheduler's is
	// cancelled.
	for i := range r.Requests {
		switch q := &r.Requests[i]; {
		case q.DryRun || q.Code < 499:
		case q.Binds():
			q.bound(bound)
		case q.Deletes():
			q.deleted(byPod)
		}
	}
}

// attribute notes the request that has made the change.
func (c *Change) attribute(r *Request) { c.Writer, c.Received = r.Writer, r.Received }

// ends reports whether a pod is being deleted, or is gone.
func (c *Change) ends() bool { return c.Pod != nil && (c.Deleted || c.Pod.DeletionTimestamp != nil) }

// bound makes a bind's writer that of the change that shows it.
func (r *Request) bound(changes map[string]*Change) {
	c := changes[string(r.UID)]
	if c != nil && c.Writer == "" && c.Pod.Spec.NodeName == r.Node && !c.Time.Before(r.Received) {
		c.attribute(r)
	}
}

// deleted makes the writer that of the change with which the pod's deletion began that was asked for.
func (r *Request) deleted(changes map[string][]*Change) {
	ending := map[string]bool{}
	for _, c := range changes[r.Namespace+"/"+r.Name] {
		uid := string(c.Pod.UID)
		if !c.ends() || ending[uid] {
			continue
		}
		ending[uid] = true
		// A scheduler leaves its victims their grace, and the run's controllers leave none.
		byController := c.Pod.DeletionGracePeriodSeconds != nil && *c.Pod.DeletionGracePeriodSeconds == 0
		if c.Writer == "" && !byController && !c.Time.Before(r.Received) && c.Time.Before(r.Answered.Add(lateness)) {
			c.attribute(r)
			return
		}
	}
}
