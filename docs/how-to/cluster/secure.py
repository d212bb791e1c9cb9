"""Connect to a cluster whose scheduler and workers show certificates."""

from distributed import Security

from consilience import DaskCluster

security = Security(
    tls_ca_file="ca.pem",
    tls_client_cert="me.pem",
    tls_client_key="me.key",
    require_encryption=True,
)
cluster = DaskCluster("tls://scheduler.example:8786", security=security)
