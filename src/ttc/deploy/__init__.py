"""Running an adapter in production: a guard with rollback, streams of single images, and resumable batch jobs."""

from ttc.core.callbacks import Event
from ttc.deploy.batch_job import AdaptationJob, JobSettings
from ttc.deploy.escalation import Level
from ttc.deploy.guard import Guard
from ttc.deploy.input_images import InputImages, read_input_images
from ttc.deploy.onnx_file import write_onnx
from ttc.deploy.policy import Limits, Policy
from ttc.deploy.shared_stream import distributed
from ttc.deploy.stream import Stream
from ttc.deploy.writers import CSVWriter, JSONLinesWriter, PrometheusWriter, TensorBoardWriter, prometheus_text

__all__ = [
    "AdaptationJob",
    "CSVWriter",
    "Event",
    "Guard",
    "InputImages",
    "JSONLinesWriter",
    "JobSettings",
    "Level",
    "Limits",
    "Policy",
    "PrometheusWriter",
    "Stream",
    "TensorBoardWriter",
    "distributed",
    "prometheus_text",
    "read_input_images",
    "write_onnx",
]
