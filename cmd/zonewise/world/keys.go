package world

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
)

// mention notes the labels of pods that a selector looks at. Pods that differ in other labels may change places: each pod of
// a StatefulSet or of an indexed Job has a label of its own.
func (w *World) mention(s *metav1.LabelSelector, more ...string) {
	if s != nil {
		for key := range s.MatchLabels {
			w.mentionKey(key)
		}
		for i := range s.MatchExpressions {
			w.mentionKey(s.MatchExpressions[i].Key)
		}
	}
	for _, key := range more {
		w.mentionKey(key)
	}
}

func (w *World) mentionKey(key string) {
	if !w.keys[key] {
		w.keys[key] = true
		clear(w.classes)
	}
}

// mentionAll notes the labels that a pod's constraints and required terms look at.
func (w *World) mentionAll(pod *corev1.Pod) {
	for i := range pod.Spec.TopologySpreadConstraints {
		c := &pod.Spec.TopologySpreadConstraints[i]
		w.mention(c.LabelSelector, c.MatchLabelKeys...)
	}
	terms := func(list []corev1.PodAffinityTerm) {
		for i := range list {
			w.mention(list[i].LabelSelector, list[i].MatchLabelKeys...)
			w.mention(nil, list[i].MismatchLabelKeys...)
		}
	}
	if a := pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		terms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	terms(antiTerms(pod))
}

// mentionPolicy notes the labels that a policy looks at.
func (w *World) mentionPolicy(p *v1alpha1.ZoneSpreadPolicy) {
	w.mention(&p.Spec.PodSelector, p.Spec.MatchLabelKeys...)
	w.mentionKey(v1alpha1.DefaultPodTemplateHash)
}

// mentioned returns those of a pod's labels that some selector looks at.
func (w *World) mentioned(pod *corev1.Pod) map[string]string {
	out := make(map[string]string, len(pod.Labels))
	for key, value := range pod.Labels {
		if w.keys[key] {
			out[key] = value
		}
	}
	return out
}
