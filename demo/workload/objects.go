package workload

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"text/template"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"zonewise.dev/apis/v1alpha1"
)

// Names that the objects carry.
const (
	// ServiceNamespace has the Deployments of the services, GangNamespace the PodGroups and their StatefulSets,
	// BatchNamespace the batch workers.
	ServiceNamespace = "services"
	GangNamespace    = "training"
	BatchNamespace   = "batch"

	// AppLabel and RoleLabel select the pods of one service's Deployment.
	AppLabel  = "app.kubernetes.io/name"
	RoleLabel = "app.kubernetes.io/component"
)

//go:embed objects
var objects embed.FS

var templates = template.Must(template.New("objects").Funcs(template.FuncMap{
	"json": func(v any) (string, error) {
		text, err := json.Marshal(v)
		return string(text), err
	},
}).ParseFS(objects, "objects/*.yaml"))

// fillTemplate fills in the template of an object.
func fillTemplate[T any](name string, data any) *T {
	var text bytes.Buffer
	out := new(T)
	err := templates.ExecuteTemplate(&text, name+".yaml", data)
	if err == nil {
		err = yaml.UnmarshalStrict(text.Bytes(), out)
	}
	if err != nil {
		panic(fmt.Errorf("%s: %w", name, err)) // the templates do not change, and the tests fill in all of them
	}
	return out
}

// Object is the node as it registers: ready, with its whole capacity allocatable.
func (n Node) Object() *corev1.Node { return fillTemplate[corev1.Node]("node", n) }

// Deployment is spread over the zones by a hard constraint unless a policy does that, with at most MaxPerNode replicas
// on one node.
func (s Service) Deployment() *appsv1.Deployment {
	return fillTemplate[appsv1.Deployment]("service", s)
}

// Batch returns the batch workers.
func (p *Plan) Batch() *appsv1.Deployment {
	return fillTemplate[appsv1.Deployment]("batch", map[string]any{"Workers": p.Workers, "Worker": worker})
}

// Policy gives zone-a twice the share of each of the others.
func (p *Plan) Policy() *v1alpha1.ZoneSpreadPolicy {
	return fillTemplate[v1alpha1.ZoneSpreadPolicy]("policy", nil)
}

// Survival asks whether the services survive the loss of any zone, except the one that DefaultPolicySurvival asks
// about.
func (p *Plan) Survival() *v1alpha1.ZoneSurvival {
	return fillTemplate[v1alpha1.ZoneSurvival]("survival", nil)
}

// DefaultPolicySurvival asks the same about the service with the default nodeTaintsPolicy.
func (p *Plan) DefaultPolicySurvival() *v1alpha1.ZoneSurvival {
	return fillTemplate[v1alpha1.ZoneSurvival]("defaultpolicysurvival", nil)
}

// Hold holds the room that the service on the shared nodes needs for that.
func (p *Plan) Hold() *v1alpha1.ZoneSurvival {
	return fillTemplate[v1alpha1.ZoneSurvival]("hold", nil)
}

// BatchSurvival asks whether the batch work survives the loss of a zone.
func (p *Plan) BatchSurvival() *v1alpha1.ZoneSurvival {
	return fillTemplate[v1alpha1.ZoneSurvival]("batchsurvival", nil)
}

// Rebalance moves replicas of the weighted service back.
func (p *Plan) Rebalance() *v1alpha1.ZoneRebalance {
	return fillTemplate[v1alpha1.ZoneRebalance]("rebalance", nil)
}

// PodGroup says that all members are bound or none.
func (g Gang) PodGroup() *schedv1alpha1.PodGroup {
	return fillTemplate[schedv1alpha1.PodGroup]("podgroup", g)
}

// StatefulSet runs the gang's members.
func (g Gang) StatefulSet() *appsv1.StatefulSet { return fillTemplate[appsv1.StatefulSet]("gang", g) }
