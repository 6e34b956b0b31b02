"""Vector environments of Gymnasium environments, in this process or in worker processes."""
