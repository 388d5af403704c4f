"""Certificates for tests of TLS, signed by openssl."""

import ssl
import subprocess

import servers


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, capture_output=True)


class Certificates:
    """An authority, and what it signs."""

    def __init__(self, folder):
        self.folder = folder
        self.ca = self.path("ca.crt")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", "/CN=authority", "-keyout", self.path("ca.key"), "-out", self.ca)
        self.sign("server", "server")
        self.sign("client", "client")

    def path(self, name):
        return str(self.folder / name)

    def sign(self, name, subject):
        extensions = self.folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        request, key = self.path(f"{name}.csr"), self.path(f"{name}.key")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", f"/CN={subject}",
                "-keyout", key, "-out", request)
        openssl("x509", "-req", "-days", "2", "-in", request, "-CA", self.ca, "-CAkey", self.path("ca.key"),
                "-CAcreateserial", "-extfile", str(extensions), "-out", self.path(f"{name}.crt"))

    def flags(self):
        return ["--tls-resp", f"{servers.HOST}:0", "--tls-memcached", f"{servers.HOST}:0",
                "--tls-cert", self.path("server.crt"), "--tls-key", self.path("server.key")]

    def context(self, with_certificate=True, version=None):
        context = ssl.create_default_context(cafile=self.ca)
        if with_certificate:
            context.load_cert_chain(self.path("client.crt"), self.path("client.key"))
        if version:
            context.minimum_version = context.maximum_version = version
        return context
