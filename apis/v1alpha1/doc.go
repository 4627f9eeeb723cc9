// Package v1alpha1 holds the custom resources of Zonewise, group zonewise.dev, version v1alpha1:
//
//	ZoneSpreadPolicy   how the pods of a namespace are spread over zones     (namespaced)
//	ZoneReservation    capacity that is held in zones for the pods of owners (cluster-scoped)
//	ZoneSurvival       whether workloads survive the loss of a zone          (cluster-scoped)
//	ZoneRebalance      which pods to move so that they are spread again      (cluster-scoped)
//
// The types are the contract; plugins/zonespread/policy, plugins/reservecache/serve, survival and rebalance apply them. Defaults and
// validation are in the CustomResourceDefinitions, which are generated from the markers here, so that the API server refuses a
// bad object and names the field.
//
// Non-goals: conversion (there is one version), and behaviour of any kind.
//
// +kubebuilder:object:generate=true
// +groupName=zonewise.dev
package v1alpha1
