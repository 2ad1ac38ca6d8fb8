"""What KubeRay's API ray.io/v1 takes in the parts of RayCluster and RayJob that the manifests use, as JSON Schema.

The operator's own CRD is not on any package index: this names its fields (KubeRay 1.1 and later) and refuses others, as
the API server does with strict validation. Templates of pods are checked against Kubernetes' own schemas elsewhere.
"""

from __future__ import annotations

from typing import Any

_STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}
_POD = {"type": "object", "required": ["spec"]}
_COUNT = {"type": "integer", "minimum": 0}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


CLUSTER_SPEC = _object(
    {
        "rayVersion": {"type": "string"},
        "enableInTreeAutoscaling": {"type": "boolean"},
        "suspend": {"type": "boolean"},
        "headServiceAnnotations": _STRINGS,
        "autoscalerOptions": _object(
            {
                "resources": {"type": "object"},
                "image": {"type": "string"},
                "imagePullPolicy": {"enum": ["Always", "Never", "IfNotPresent"]},
                "env": {"type": "array"},
                "envFrom": {"type": "array"},
                "volumeMounts": {"type": "array"},
                "securityContext": {"type": "object"},
                "idleTimeoutSeconds": _COUNT,
                "upscalingMode": {"enum": ["Default", "Aggressive", "Conservative"]},
            }
        ),
        "headGroupSpec": _object(
            {
                "serviceType": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
                "headService": {"type": "object"},
                "enableIngress": {"type": "boolean"},
                "rayStartParams": _STRINGS,
                "template": _POD,
            },
            "rayStartParams",
            "template",
        ),
        "workerGroupSpecs": {
            "type": "array",
            "items": _object(
                {
                    "groupName": {"type": "string"},
                    "replicas": _COUNT,
                    "minReplicas": _COUNT,
                    "maxReplicas": _COUNT,
                    "numOfHosts": {"type": "integer", "minimum": 1},
                    "rayStartParams": _STRINGS,
                    "template": _POD,
                    "scaleStrategy": _object({"workersToDelete": {"type": "array", "items": {"type": "string"}}}),
                },
                "groupName",
                "minReplicas",
                "maxReplicas",
                "rayStartParams",
                "template",
            ),
        },
    },
    "headGroupSpec",
)

JOB_SPEC = _object(
    {
        "entrypoint": {"type": "string"},
        "entrypointNumCpus": {"type": "number"},
        "entrypointNumGpus": {"type": "number"},
        "entrypointResources": {"type": "string"},
        "runtimeEnvYAML": {"type": "string"},
        "jobId": {"type": "string"},
        "submissionMode": {"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
        "submitterPodTemplate": _POD,
        "submitterConfig": _object({"backoffLimit": _COUNT}),
        "metadata": _STRINGS,
        "clusterSelector": _STRINGS,
        "activeDeadlineSeconds": {"type": "integer", "minimum": 1},
        "backoffLimit": _COUNT,
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "ttlSecondsAfterFinished": _COUNT,
        "suspend": {"type": "boolean"},
        "rayClusterSpec": CLUSTER_SPEC,
    }
)


def _resource(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return _object(
        {
            "apiVersion": {"const": "ray.io/v1"},
            "kind": {"const": kind},
            "metadata": {"type": "object", "required": ["name"]},
            "spec": spec,
        },
        "apiVersion",
        "kind",
        "metadata",
        "spec",
    )


SCHEMAS = {"RayCluster": _resource("RayCluster", CLUSTER_SPEC), "RayJob": _resource("RayJob", JOB_SPEC)}
