//! Namespaces.

use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;

use super::{Method, methods};
use crate::Master;

pub(super) const METHODS: &[Method<Master>] = methods![
    "CreateNamespace" => create,
    "DeleteNamespace" => delete,
    "GetNamespaceDescriptor" => get,
    "ListNamespaceDescriptors" => list_descriptors,
    "ListNamespaces" => list,
    "ModifyNamespace" => modify,
];

fn create(master: &Arc<Master>, q: pb::CreateNamespaceRequest) -> Result<pb::CreateNamespaceResponse> {
    let nonce = (q.nonce_group(), q.nonce());
    let id = master.create_namespace(q.namespace_descriptor, nonce)?;
    Ok(pb::CreateNamespaceResponse { proc_id: Some(id) })
}

fn modify(master: &Arc<Master>, q: pb::ModifyNamespaceRequest) -> Result<pb::ModifyNamespaceResponse> {
    let nonce = (q.nonce_group(), q.nonce());
    let id = master.modify_namespace(q.namespace_descriptor, nonce)?;
    Ok(pb::ModifyNamespaceResponse { proc_id: Some(id) })
}

fn delete(master: &Arc<Master>, q: pb::DeleteNamespaceRequest) -> Result<pb::DeleteNamespaceResponse> {
    let nonce = (q.nonce_group(), q.nonce());
    let id = master.delete_namespace(q.namespace_name, nonce)?;
    Ok(pb::DeleteNamespaceResponse { proc_id: Some(id) })
}

fn get(
    master: &Arc<Master>,
    q: pb::GetNamespaceDescriptorRequest,
) -> Result<pb::GetNamespaceDescriptorResponse> {
    let namespace_descriptor = master.namespaces().get(&q.namespace_name)?;
    Ok(pb::GetNamespaceDescriptorResponse { namespace_descriptor })
}

fn list_descriptors(
    master: &Arc<Master>,
    _: pb::ListNamespaceDescriptorsRequest,
) -> Result<pb::ListNamespaceDescriptorsResponse> {
    let mut found = master.reply_list();
    master.namespaces().visit(|namespace| found.push(namespace))?;
    Ok(pb::ListNamespaceDescriptorsResponse { namespace_descriptor: found.into_messages() })
}

fn list(master: &Arc<Master>, _: pb::ListNamespacesRequest) -> Result<pb::ListNamespacesResponse> {
    let mut namespace_name = Vec::new();
    master.namespaces().visit(|namespace| {
        namespace_name.push(String::from_utf8_lossy(&namespace.name).into_owned());
        Ok(())
    })?;
    Ok(pb::ListNamespacesResponse { namespace_name })
}
